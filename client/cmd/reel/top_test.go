package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

func topStatus(uptime float64, tokens, exact uint64) *client.Status {
	return &client.Status{
		State: protocol.StateReady, Model: "m", Device: "host", PID: 1, UptimeS: uptime, Progress: 1,
		Limits:   client.Limits{MaxBatch: 8, Queue: 512, Connections: 128},
		Requests: protocol.Requests{Running: 4},
		Steps:    protocol.Steps{Prefill: tokens / 100, Decode: tokens / 2, Tokens: tokens},
		Graphs:   protocol.GraphPool{Exact: exact, Eager: exact / 3, Roller: "waiting"},
	}
}

// lineOf returns the view's line that begins with name.
func lineOf(t *testing.T, view []string, name string) string {
	t.Helper()
	i := slices.IndexFunc(view, func(line string) bool { return strings.HasPrefix(line, name+" ") })
	if i < 0 {
		t.Fatalf("no line %s in\n%s", name, strings.Join(view, "\n"))
	}
	return strings.TrimSpace(strings.TrimPrefix(view[i], name))
}

// TestTopDisk: what was written and read comes from two consecutive statuses.
func TestTopDisk(t *testing.T) {
	var v topView
	status := func(uptime float64, d protocol.Disk) *client.Status {
		s := topStatus(uptime, 0, 0)
		s.Disk = d
		return s
	}
	v.next(status(1, protocol.Disk{State: protocol.DiskUsed, Written: 10}), nil)
	view := v.next(status(2, protocol.Disk{State: protocol.DiskUsed, Written: 11, Read: 8, Hits: 2}), nil)
	if got := lineOf(t, view, "copied"); got != "-; files: 1 page written, 8 read for 2 prompts" {
		t.Errorf("copied is %q", got)
	}
	off := protocol.Disk{State: protocol.DiskOff, Pages: 1, Written: 11, Read: 8, Hits: 2, Errors: 1}
	view = v.next(status(3, off), nil)
	if got := lineOf(t, view, "copied"); got != "-; files: 0 pages written, 0 read for 0 prompts, 1 error" {
		t.Errorf("copied is %q", got)
	}
	if got := lineOf(t, view, "disk"); !strings.HasSuffix(got, "  0 B of 0 B in files, 1 page; off") {
		t.Errorf("disk is %q", got)
	}
}

// TestTopCache: the share of cached prompt tokens comes from two consecutive statuses.
func TestTopCache(t *testing.T) {
	var v topView
	status := func(uptime float64, scope string, requests, hits, tokens, cached uint64) *client.Status {
		s := topStatus(uptime, 0, 0)
		s.KV = protocol.KV{PageTokens: 16, Pages: 64, Used: 32, Cached: 8, Evicted: requests}
		s.Cache = protocol.Cache{
			Scope: scope, Requests: requests, Hits: hits, PromptTokens: tokens, CachedTokens: cached}
		return s
	}
	rereads := func(s *client.Status) *client.Status {
		s.Steps.Rereads = 2
		return s
	}
	view := v.next(status(1, protocol.ScopeUser, 9, 4, 900, 100), nil)
	if got := lineOf(t, view, "cache"); got != "-" {
		t.Errorf("a first view has hits: %q", got)
	}
	if got := lineOf(t, view, "kv"); !strings.HasSuffix(got, "  32 of 64 pages of 16 tokens, 8 more cached") {
		t.Errorf("kv is %q", got)
	}
	for _, next := range []struct {
		status *client.Status
		want   string
	}{
		{status(2, protocol.ScopeUser, 12, 6, 1300, 400),
			"2 of 3 prompts hit, 75% of their tokens cached; 3 pages evicted"},
		{status(3, protocol.ScopeUser, 12, 6, 1300, 400), "no prompts"},
		{rereads(status(4, protocol.ScopeUser, 12, 6, 1300, 400)), "no prompts; 2 answers read again"},
		{status(5, protocol.ScopeOff, 0, 0, 0, 0), "off"},
	} {
		if got := lineOf(t, v.next(next.status, nil), "cache"); got != next.want {
			t.Errorf("cache is %q, want %q", got, next.want)
		}
	}
}

// TestTopDrafts: the share of accepted drafts comes from two consecutive statuses.
func TestTopDrafts(t *testing.T) {
	var v topView
	status := func(uptime float64, drafter string, tokens int, counts ...protocol.DraftCount) *client.Status {
		s := topStatus(uptime, 0, 0)
		s.Drafts = protocol.Drafts{Drafter: drafter, Tokens: tokens, Counts: counts}
		return s
	}
	two := protocol.DraftCount{Drafts: 2, Steps: 100, Drafted: 200, Accepted: 50}
	if got := lineOf(t, v.next(status(1, protocol.DrafterLookup, 7, two), nil), "drafts"); got != "-" {
		t.Errorf("a first view has drafts: %q", got)
	}
	for _, next := range []struct {
		status *client.Status
		want   string
	}{
		{status(2, protocol.DrafterLookup, 7, two, protocol.DraftCount{Drafts: 7, Steps: 10, Drafted: 70, Accepted: 35}),
			"lookup: 50% of 70 accepted, 4.50 tokens a step with drafts"},
		{status(3, protocol.DrafterLookup, 7, two, protocol.DraftCount{Drafts: 7, Steps: 10, Drafted: 70, Accepted: 35}),
			"lookup: none"},
		{status(4, protocol.DrafterOff, 0), "off"},
		{status(5, protocol.DrafterLookup, 0), "off"},
		{status(6, "", 0), "off"}, // of an older generator
	} {
		if got := lineOf(t, v.next(next.status, nil), "drafts"); got != next.want {
			t.Errorf("drafts are %q, want %q", got, next.want)
		}
	}
}

// TestTopHost: what was copied to host memory and back comes from two consecutive statuses.
func TestTopHost(t *testing.T) {
	var v topView
	status := func(uptime float64, pages int, stored, loaded, out uint64) *client.Status {
		s := topStatus(uptime, 0, 0)
		s.KV = protocol.KV{Pages: 64, PageBytes: 1 << 20, HostPages: pages, HostCached: 24, HostSequences: 8,
			Stored: stored, Loaded: loaded, MovedOut: out, MovedIn: out - 1}
		return s
	}
	v.next(status(1, 64, 10, 10, 1), nil)
	view := v.next(status(3, 64, 30, 11, 2), nil)
	if got := lineOf(t, view, "copied"); got != "10.0 MiB/s out, 512 KiB/s in; 1 requests moved out, 1 back" {
		t.Errorf("copied is %q", got)
	}
	if got := lineOf(t, view, "host"); !strings.HasSuffix(got, "  32 of 64 pages, 8 of requests that moved out") {
		t.Errorf("host is %q", got)
	}
	view = v.next(status(4, 0, 0, 0, 1), nil)
	if got := lineOf(t, view, "copied"); got != "-" || slices.ContainsFunc(view, func(line string) bool {
		return strings.HasPrefix(line, "host ")
	}) {
		t.Errorf("without a tier: %q", view)
	}
}

// TestTopRates: rates come from two consecutive statuses, by the generator's clock.
func TestTopRates(t *testing.T) {
	var v topView
	if got := lineOf(t, v.next(topStatus(10, 1000, 300), nil), "tokens/s"); got != "-" {
		t.Errorf("a first view has a rate: %q", got)
	}
	view := v.next(topStatus(12, 1200, 600), nil)
	for name, want := range map[string]string{
		"tokens/s": "100.0     █",
		"steps/s":  "1.0 prefill, 50.0 decode",
		"launched": "75% exact, 0% padded, 25% eager",
		"batch":    strings.Repeat("█", 12) + strings.Repeat("░", 12) + "  4 of 8 requests run",
	} {
		if got := lineOf(t, view, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := lineOf(t, v.next(topStatus(14, 1300, 600), nil), "tokens/s"); got != "50.0      █▅" {
		t.Errorf("half the rate is %q", got)
	}
	if got := lineOf(t, v.next(topStatus(16, 1300, 600), nil), "launched"); got != "no steps" {
		t.Errorf("an idle generator launched %q", got)
	}
	fresh := topStatus(18, 0, 0)
	fresh.PID = 2
	if got := lineOf(t, v.next(fresh, nil), "tokens/s"); got != "-" {
		t.Errorf("a restarted generator has a rate: %q", got)
	}
	if got := v.next(nil, errors.New("gone")); len(got) != 2 || !strings.Contains(got[0], "gone") {
		t.Errorf("no generator: %q", got)
	}
}

func TestSparkAndGauge(t *testing.T) {
	if got := spark([]float64{0, 50, 100}); got != "▁▅█" {
		t.Errorf("%q", got)
	}
	if got := spark([]float64{0, 0}); got != "▁▁" {
		t.Errorf("%q", got)
	}
	for _, c := range []struct{ used, of, full int }{
		{0, 8, 0}, {1, 1000, 1}, {8, 8, barWidth}, {9, 8, barWidth}, {1, 0, 0},
	} {
		if got := strings.Count(gauge(c.used, c.of, ""), "█"); got != c.full {
			t.Errorf("%d of %d: %d full, want %d", c.used, c.of, got, c.full)
		}
	}
}

func TestCut(t *testing.T) {
	if got := cut("██ab", 3); got != "██a" {
		t.Errorf("%q", got)
	}
}

// TestTopHeading: the heading shows the generator's activity while it loads, and the
// reason if it failed.
func TestTopHeading(t *testing.T) {
	s := &client.Status{State: protocol.StateFailed, Doing: "loading the weights",
		Failure: &protocol.Failure{Code: "device_failed", Message: "it is gone", Hint: "push it in"}}
	view := strings.Join(new(topView).next(s, nil), "\n")
	for _, want := range []string{"failed", "loading the weights", "device_failed: it is gone", "push it in"} {
		if !strings.Contains(view, want) {
			t.Errorf("no %q in\n%s", want, view)
		}
	}
}

func TestPlural(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 answers", 1: "1 answer", 2: "2 answers", 1500: "1,500 answers"} {
		if got := plural(n, "answer"); got != want {
			t.Errorf("%q, wants %q", got, want)
		}
	}
}

// TestTopMixed: mixed steps are shown where there are some.
func TestTopMixed(t *testing.T) {
	var v topView
	v.next(topStatus(1, 0, 0), nil)
	s := topStatus(2, 200, 0)
	if got := lineOf(t, v.next(s, nil), "steps/s"); got != "2.0 prefill, 100.0 decode" {
		t.Errorf("steps are %q", got)
	}
	s = topStatus(3, 200, 0)
	s.Steps.Mixed = 3
	if got := lineOf(t, v.next(s, nil), "steps/s"); got != "0.0 prefill, 0.0 decode, 3.0 mixed" {
		t.Errorf("steps are %q", got)
	}
}
