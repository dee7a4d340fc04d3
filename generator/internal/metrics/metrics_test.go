package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"reel.internal/reel/generator/internal/gpu"
	"reel.internal/reel/protocol"
)

func fullStatus() *protocol.Status {
	return &protocol.Status{
		State: protocol.StateReady, Version: "1", Model: "m", Device: "cuda", UptimeS: 9, Connections: 3,
		Requests: protocol.Requests{Running: 2, Waiting: 1, Refused: 4},
		KV: protocol.KV{Pages: 256, Used: 12, Cached: 40, Evicted: 3, PageBytes: 1000,
			HostPages: 64, HostCached: 30, HostSequences: 5, Stored: 50, Loaded: 20, MovedOut: 7, MovedIn: 6},
		Cache: protocol.Cache{Scope: protocol.ScopeUser, Requests: 20, Hits: 12, PromptTokens: 5016, CachedTokens: 4000},
		Disk: protocol.Disk{State: protocol.DiskUsed, Bytes: 11, MaxBytes: 21, Pages: 31, Hits: 41, Read: 51, Written: 61,
			Errors: 71},
		Limits: protocol.Limits{MaxBatch: 8},
		Steps: protocol.Steps{
			Prefill: 5, Decode: 70, Mixed: 8, Tokens: 99, Rereads: 7, RereadTokens: 800, HostUS: 2500000,
			Graphs: protocol.Graphs{Precaptured: 65, Rolled: 4, Padded: 19, Eager: 5},
		},
		Graphs: protocol.GraphPool{
			Live: 127, MaxGraphs: 128, Bytes: 129, Precaptured: 97, Rolled: 45, Evicted: 15, Failed: 3, Refused: 1,
			Exact: 6, Padded: 19, Eager: 50, CaptureRequests: 6, CaptureS: 0.25, RollS: 0.125, CaptureMedianMS: 2,
		},
		Drafts: protocol.Drafts{Drafter: protocol.DrafterLookup, Tokens: 7, Counts: []protocol.DraftCount{
			{Drafts: 2, Steps: 10, Drafted: 20, Accepted: 5}, {Drafts: 7, Steps: 3, Drafted: 21, Accepted: 8},
			{Drafts: 2, Steps: 4, Drafted: 8, Accepted: 7, Format: true}}},
		Machine: protocol.Machine{Name: "GPU", MemoryUsed: 15, MemoryTotal: 140},
		Memory:  []protocol.MemoryUse{{Kind: protocol.MemoryWeights, Planned: 14, Used: 13}},
	}
}

func fullReading() []gpu.Reading {
	half, hot, watts := 0.5, 61.0, 312.5
	cool := 40.0
	return []gpu.Reading{{GPU: 2, Temperature: &cool}, {
		GPU:         3,
		Utilisation: &half, Temperature: &hot, Power: &watts,
		Throttling: map[string]bool{"thermal": true, "power_cap": false},
		ECC:        map[string]uint64{"corrected": 7, "uncorrected": 0},
		Xid:        map[uint64]uint64{79: 1},
	}}
}

// full returns metrics with a value for each.
func full() *Metrics {
	m := New(fullStatus, fullReading)
	m.Connected()
	m.Error(protocol.CodeBadFrame)
	m.Tokens(3, 30*time.Millisecond)
	m.Request(protocol.FinishStop, protocol.Usage{PromptTokens: 10, CompletionTokens: 4},
		protocol.Timing{QueueMS: 1, TTFTMS: 20, TotalMS: 50})
	return m
}

func gather(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	list, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range list {
		all[f.GetName()] = f
	}
	return all
}

// value returns the value of the metric with this label value, or, without a label, of the
// only metric.
func value(t *testing.T, f *dto.MetricFamily, label string) float64 {
	t.Helper()
	for _, m := range f.GetMetric() {
		if label != "" && !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
			continue
		}
		switch {
		case m.Gauge != nil:
			return m.GetGauge().GetValue()
		case m.Counter != nil:
			return m.GetCounter().GetValue()
		}
		return m.GetHistogram().GetSampleSum()
	}
	t.Fatalf("%s has no label %q", f.GetName(), label)
	return 0
}

func TestValues(t *testing.T) {
	all := gather(t, full())
	for _, want := range []struct {
		name, label string
		value       float64
	}{
		{"reel_time_to_first_token_seconds", "", 0.02},
		{"reel_inter_token_latency_seconds", "", 0.03},
		{"reel_queue_seconds", "", 0.001},
		{"reel_request_seconds", "", 0.05},
		{"reel_requests_total", "stop", 1},
		{"reel_prompt_tokens_total", "", 10},
		{"reel_generated_tokens_total", "", 4},
		{"reel_errors_total", "bad_frame", 1},
		{"reel_connections_total", "", 1},
		{"reel_state", "ready", 1},
		{"reel_state", "failed", 0},
		{"reel_requests_running", "", 2},
		{"reel_requests_waiting", "", 1},
		{"reel_requests_refused_total", "", 4},
		{"reel_steps_total", "decode", 70},
		{"reel_steps_total", "mixed", 8},
		{"reel_kv_pages_used", "", 12},
		{"reel_cached_pages", "device", 40},
		{"reel_cached_pages", "host", 30},
		{"reel_cached_pages", "disk", 31},
		{"reel_cache_dir_bytes", "", 11},
		{"reel_cache_dir_bytes_limit", "", 21},
		{"reel_cache_dir_pages_total", "read", 51},
		{"reel_cache_dir_pages_total", "written", 61},
		{"reel_cache_dir_hits_total", "", 41},
		{"reel_cache_dir_errors_total", "", 71},
		{"reel_cached_pages_evicted_total", "", 3},
		{"reel_host_pages", "", 64},
		{"reel_host_pages_of_requests", "", 5},
		{"reel_host_copied_bytes_total", "out", 50000},
		{"reel_host_copied_bytes_total", "in", 20000},
		{"reel_requests_moved_total", "out", 7},
		{"reel_requests_moved_total", "in", 6},
		{"reel_cache_requests_total", "hit", 12},
		{"reel_cache_requests_total", "miss", 8},
		{"reel_cache_prompt_tokens_total", "cached", 4000},
		{"reel_cache_prompt_tokens_total", "computed", 1016},
		{"reel_reread_tokens_total", "", 800},
		{"reel_engine_thread_seconds_total", "", 2.5},
		{"reel_graphs_live", "", 127},
		{"reel_graphs_captured_total", "serving", 45},
		{"reel_graphs_evicted_total", "", 15},
		{"reel_graphs_failed_total", "", 3},
		{"reel_graph_launches_total", "eager", 50},
		{"reel_graph_replays_total", "rolled", 4},
		{"reel_graph_capture_seconds_total", "serving", 0.125},
		{"reel_graph_capture_median_seconds", "", 0.002},
		{"reel_graph_bytes", "", 129},
		{"reel_memory_planned_bytes", "weights", 14},
		{"reel_memory_used_bytes", "weights", 13},
		{"reel_device_memory_used_bytes", "", 15},
		{"reel_gpu_utilisation_ratio", "", 0.5},
		{"reel_gpu_temperature_celsius", "2", 40},
		{"reel_gpu_temperature_celsius", "3", 61},
		{"reel_gpu_power_watts", "", 312.5},
		{"reel_gpu_throttling", "thermal", 1},
		{"reel_gpu_ecc_errors_total", "corrected", 7},
		{"reel_gpu_xid_errors_total", "79", 1},
	} {
		f := all[want.name]
		if f == nil {
			t.Errorf("there is no %s", want.name)
		} else if got := value(t, f, want.label); got < want.value*0.999 || got > want.value*1.001 {
			t.Errorf("%s %s is %v, want %v", want.name, want.label, got, want.value)
		}
	}
	if n := all["reel_inter_token_latency_seconds"].GetMetric()[0].GetHistogram().GetSampleCount(); n != 3 {
		t.Errorf("%d times between tokens, want 3", n)
	}
	for name, f := range all {
		if !strings.HasPrefix(name, "reel_") || f.GetHelp() == "" {
			t.Errorf("%s: %q", name, f.GetHelp())
		}
	}
}

// Values that a loading generator or a GPU does not report are absent.
func TestUnknownValuesAreAbsent(t *testing.T) {
	loading := func() *protocol.Status { return &protocol.Status{State: protocol.StateLoading} }
	for name, readGPU := range map[string]func() []gpu.Reading{
		"no GPU":  nil,
		"not yet": func() []gpu.Reading { return nil },
		"silent":  func() []gpu.Reading { return []gpu.Reading{{}} },
	} {
		m := New(loading, readGPU)
		m.Request("internal", protocol.Usage{}, protocol.Timing{TotalMS: 1})
		all := gather(t, m)
		for _, absent := range []string{
			"reel_gpu_utilisation_ratio", "reel_gpu_power_watts", "reel_memory_used_bytes",
		} {
			if all[absent] != nil {
				t.Errorf("%s: %s is there", name, absent)
			}
		}
		ttft := all["reel_time_to_first_token_seconds"].GetMetric()[0].GetHistogram()
		if ttft.GetSampleCount() != 0 {
			t.Errorf("%s: a request without a token counts", name)
		}
	}
}

// Guesses are counted by drafter, number of drafts and result.
func TestDraftValues(t *testing.T) {
	got := map[string]float64{}
	for name, f := range gather(t, full()) {
		if strings.HasPrefix(name, "reel_draft_") {
			for _, m := range f.GetMetric() {
				key := name
				for _, l := range m.GetLabel() {
					key += " " + l.GetValue()
				}
				got[key] = m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{
		"reel_draft_steps_total lookup 2": 10, "reel_draft_steps_total lookup 7": 3,
		"reel_draft_tokens_total lookup 2 accepted": 5, "reel_draft_tokens_total lookup 2 rejected": 15,
		"reel_draft_tokens_total lookup 7 accepted": 8, "reel_draft_tokens_total lookup 7 rejected": 13,
		"reel_draft_steps_total format 2":           4,
		"reel_draft_tokens_total format 2 accepted": 7, "reel_draft_tokens_total format 2 rejected": 1}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

const dashboard = "../../../systemd/grafana-dashboard.json"

var metricName = regexp.MustCompile(`\breel_[a-z0-9_]+`)

// Each metric that the dashboard names exists, and each metric is on the dashboard.
func TestDashboardHasTheMetrics(t *testing.T) {
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	all, shown := gather(t, full()), map[string]bool{}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				name = family(all, name)
				shown[name] = true
				if all[name] == nil {
					t.Errorf("panel %q names %s, which does not exist", p.Title, name)
				}
			}
		}
	}
	for name := range all {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// family returns the name of the histogram that a metric such as X_bucket belongs to, or
// name itself.
func family(all map[string]*dto.MetricFamily, name string) string {
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		base, cut := strings.CutSuffix(name, part)
		if cut && all[base].GetType() == dto.MetricType_HISTOGRAM {
			return base
		}
	}
	return name
}

// Each label that the dashboard names exists.
func TestDashboardHasTheLabels(t *testing.T) {
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"instance", "le"} // Prometheus' own
	for _, f := range gather(t, full()) {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				known = append(known, l.GetName())
			}
		}
	}
	for _, m := range regexp.MustCompile(`by \(([a-z_]+)\)|\{\{([a-z_]+)\}\}`).FindAllStringSubmatch(string(text), -1) {
		if label := m[1] + m[2]; !slices.Contains(known, label) {
			t.Errorf("no metric has the label %s", label)
		}
	}
}
