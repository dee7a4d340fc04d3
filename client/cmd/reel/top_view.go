package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// topView turns statuses into views, with rates between consecutive ones.
type topView struct {
	last *client.Status
	rate []float64 // tokens per second, in the latest views
}

const (
	barWidth   = 24
	rateLength = 40 // views in the curve of rates
)

// next returns the view of a status, or of the error if there is none.
func (v *topView) next(s *client.Status, err error) []string {
	if err != nil {
		v.last, v.rate = nil, nil
		if errors.Is(err, client.ErrSleeping) {
			return []string{"sleeping: the next request starts the generator", "q ends"}
		}
		return []string{"no generator answers: " + err.Error(), "waiting for one; q ends"}
	}
	lines := heading(s)
	if s.Model != "" && s.State != protocol.StateLoading {
		lines = append(lines, "")
		lines = append(lines, loads(s)...)
		lines = append(lines, "")
		lines = append(lines, v.rates(s)...)
		lines = append(lines, memoryLines(s)...)
	}
	v.last = s
	return lines
}

// heading describes the generator and its state.
func heading(s *client.Status) []string {
	up := time.Duration(s.UptimeS * float64(time.Second)).Round(time.Second)
	state := s.State
	if s.Progress < 1 {
		state += fmt.Sprintf(" %.0f%%", 100*s.Progress)
	}
	title := "Reel"
	if s.Model != "" {
		title = s.Model + " on " + deviceText(s)
	}
	lines := []string{title, fmt.Sprintf("%s, up %v, generator %s, pid %d, connections %d",
		state, up, s.Version, s.PID, s.Connections)}
	if s.Doing != "" {
		lines = append(lines, s.Doing)
	}
	if f := s.Failure; f != nil {
		lines = append(lines, f.Code+": "+f.Message, f.Hint)
	}
	return lines
}

// loads shows how full the queue, the batch, the KV pool and the graph pool are.
func loads(s *client.Status) []string {
	r, g := s.Requests, s.Graphs
	lines := []string{
		row("requests", fmt.Sprintf("%d waiting of %d; %d finished, %d cancelled, %d failed, %d refused",
			r.Waiting, s.Limits.Queue, r.Finished, r.Cancelled, r.Failed, r.Refused)),
		row("batch", gauge(r.Running, s.Limits.MaxBatch+s.Reserve.Slots, "requests run")),
		row("kv", gauge(s.KV.Used, s.KV.Pages, fmt.Sprintf("pages of %d tokens, %d more cached",
			s.KV.PageTokens, s.KV.Cached))),
	}
	if kv := s.KV; kv.HostPages > 0 {
		lines = append(lines, row("host", gauge(kv.HostCached+kv.HostSequences, kv.HostPages,
			fmt.Sprintf("pages, %d of requests that moved out", kv.HostSequences))))
	}
	if d := s.Disk; d.State != "" {
		text := fmt.Sprintf("  %s of %s in files, %s", size(d.Bytes), size(d.MaxBytes), plural(uint64(d.Pages), "page"))
		if d.State != protocol.DiskUsed {
			text += "; " + d.State
		}
		lines = append(lines, row("disk", filledBar(float64(d.Bytes), float64(d.MaxBytes))+text))
	}
	return append(lines,
		row("graphs", gauge(g.Live, g.MaxGraphs, fmt.Sprintf("live, %s of %s", size(g.Bytes), size(g.Budget)))))
}

// row returns a line of a name and a text.
func row(name, text string) string { return fmt.Sprintf("%-11s%s", name, text) }

// gauge draws the used share of something with its numbers.
func gauge(used, of int, unit string) string {
	return filledBar(float64(used), float64(of)) + fmt.Sprintf("  %d of %d %s", used, of, unit)
}

// filledBar draws the used share of something.
func filledBar(used, of float64) string {
	full := 0
	if of > 0 {
		full = min(barWidth, int(math.Ceil(barWidth*used/of)))
	}
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

// rates shows events per second since the last view. Another process than in the last
// view has none yet.
func (v *topView) rates(s *client.Status) []string {
	before, seconds := v.last, 0.0
	if before != nil && before.PID == s.PID {
		seconds = s.UptimeS - before.UptimeS
	}
	if seconds <= 0 {
		return []string{
			row("tokens/s", "-"), row("steps/s", "-"), row("launched", "-"), row("cache", "-"),
			row("drafts", "-"), row("copied", "-"), row("roller", rollerText(s.Graphs)),
		}
	}
	per := func(now, then uint64) float64 { return float64(now-then) / seconds }
	tokens := per(s.Steps.Tokens, before.Steps.Tokens)
	v.rate = append(v.rate, tokens)
	v.rate = v.rate[max(0, len(v.rate)-rateLength):]
	mixed := ""
	if n := per(s.Steps.Mixed, before.Steps.Mixed); n > 0 {
		mixed = fmt.Sprintf(", %.1f mixed", n)
	}
	return []string{
		row("tokens/s", fmt.Sprintf("%-10.1f%s", tokens, spark(v.rate))),
		row("steps/s", fmt.Sprintf("%.1f prefill, %.1f decode%s", per(s.Steps.Prefill, before.Steps.Prefill),
			per(s.Steps.Decode, before.Steps.Decode), mixed)),
		row("launched", shares(s.Graphs, before.Graphs)),
		row("cache", found(s, before)),
		row("drafts", stood(s.Drafts, before.Drafts)),
		row("copied", copied(s.KV, before.KV, seconds)+filed(s.Disk, before.Disk)),
		row("roller", rollerText(s.Graphs)),
	}
}

// shares shows the steps between two views by how they were launched.
func shares(now, then protocol.GraphPool) string {
	exact, padded, eager := now.Exact-then.Exact, now.Padded-then.Padded, now.Eager-then.Eager
	all := float64(exact + padded + eager)
	if all == 0 {
		return "no steps"
	}
	return fmt.Sprintf("%.0f%% exact, %.0f%% padded, %.0f%% eager",
		100*float64(exact)/all, 100*float64(padded)/all, 100*float64(eager)/all)
}

// found shows the share of prompt tokens between two views that were cached.
func found(now, then *client.Status) string {
	c, b := now.Cache, then.Cache
	tokens, prompts := c.PromptTokens-b.PromptTokens, c.Requests-b.Requests
	text := "no prompts"
	switch {
	case c.Scope == protocol.ScopeOff:
		return "off"
	case tokens > 0:
		text = fmt.Sprintf("%d of %d prompts hit, %.0f%% of their tokens cached; %d pages evicted", c.Hits-b.Hits, prompts,
			100*float64(c.CachedTokens-b.CachedTokens)/float64(tokens), now.KV.Evicted-then.KV.Evicted)
	}
	if n := now.Steps.Rereads - then.Steps.Rereads; n > 0 {
		text += "; " + plural(n, "answer") + " read again"
	}
	return text
}

// copied shows the bytes that went to the host tier and back between two views, and requests that moved.
func copied(now, then protocol.KV, seconds float64) string {
	if now.HostPages == 0 {
		return "-"
	}
	rate := func(now, then uint64, bytes int64) string {
		return size(int64(float64(int64(now-then)*bytes)/seconds)) + "/s"
	}
	return fmt.Sprintf("%s out, %s in; %d requests moved out, %d back", rate(now.Stored, then.Stored, now.PageBytes),
		rate(now.Loaded, then.Loaded, now.PageBytes), now.MovedOut-then.MovedOut, now.MovedIn-then.MovedIn)
}

// filed shows the pages that went to files and back between two views, unless there is no directory for them.
func filed(now, then protocol.Disk) string {
	if now.State == "" {
		return ""
	}
	text := fmt.Sprintf("; files: %s written, %s read for %s", plural(now.Written-then.Written, "page"),
		count(now.Read-then.Read), plural(now.Hits-then.Hits, "prompt"))
	if n := now.Errors - then.Errors; n > 0 {
		text += ", " + plural(n, "error")
	}
	return text
}

// rollerText describes the roller's state and work.
func rollerText(g protocol.GraphPool) string {
	text := fmt.Sprintf("%s; %d rolled, %d evicted", g.Roller, g.Rolled, g.Evicted)
	if g.Failed > 0 {
		text += fmt.Sprintf(", %d captures failed", g.Failed)
	}
	if g.Failure != "" {
		text += ": " + g.Failure
	}
	return text
}

// spark draws values as bars, relative to the greatest.
func spark(values []float64) string {
	const heights = "▁▂▃▄▅▆▇█"
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		level := 0
		if most > 0 {
			level = min(7, int(8*v/most))
		}
		b.WriteRune([]rune(heights)[level])
	}
	return b.String()
}

// memoryLines shows the device's memory by kind, beside the plan.
func memoryLines(s *client.Status) []string {
	if s.Machine.MemoryTotal == 0 {
		return nil
	}
	used := fmt.Sprintf("%s of %s used on the device", size(s.Machine.MemoryUsed), size(s.Machine.MemoryTotal))
	lines := []string{"", row("memory", used)}
	for _, m := range s.Memory {
		used := fmt.Sprintf("%9s of %9s planned", size(m.Used), size(m.Planned))
		lines = append(lines, row("  "+m.Kind, used))
	}
	return lines
}
