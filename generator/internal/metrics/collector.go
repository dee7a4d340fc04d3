package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"reel/generator/internal/gpu"
	"reel/protocol"
)

// collector makes metrics of a status and of a GPU's reading, at each scrape.
type collector struct {
	status   func() *protocol.Status
	graphics func() *gpu.Reading
}

// emit takes one value of a metric, and the values of its labels.
type emit func(value float64, labels ...string)

// figure is a metric that is read from a T.
type figure[T any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(from T, to emit)
}

// gauge is a figure that goes up and down.
func gauge[T any](name, help string, read func(T, emit), labels ...string) figure[T] {
	return figure[T]{prometheus.NewDesc(prefix+name, help, labels, nil), prometheus.GaugeValue, read}
}

// total is a figure that counts since the start.
func total[T any](name, help string, read func(T, emit), labels ...string) figure[T] {
	return figure[T]{prometheus.NewDesc(prefix+name+"_total", help, labels, nil), prometheus.CounterValue, read}
}

// one reads a single number.
func one[T any, N int | int64 | uint64 | float64](of func(T) N) func(T, emit) {
	return func(from T, to emit) { to(float64(of(from))) }
}

// Describe names every metric, those too that a loading generator does not have yet.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range statusFigures {
		to <- f.desc
	}
	for _, f := range gpuFigures {
		to <- f.desc
	}
}

// Collect reads all of them.
func (c collector) Collect(to chan<- prometheus.Metric) {
	collect(to, statusFigures, c.status())
	if c.graphics == nil {
		return
	}
	if reading := c.graphics(); reading != nil {
		collect(to, gpuFigures, reading)
	}
}

func collect[T any](to chan<- prometheus.Metric, figures []figure[T], from T) {
	for _, f := range figures {
		f.read(from, func(value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
		})
	}
}

type status = *protocol.Status

// states are all that a generator may be in.
var states = []string{protocol.StateLoading, protocol.StateReady, protocol.StateDraining, protocol.StateFailed}

var statusFigures = []figure[status]{
	gauge("info", "Always 1: what runs, and what is served on what.", func(s status, to emit) { to(1, s.Version, s.Model, s.Device, s.Machine.Name) }, "version", "model", "device", "machine"),
	gauge("state", "1 for the state that the generator is in.", func(s status, to emit) {
		for _, name := range states {
			to(flag(s.State == name), name)
		}
	}, "state"),
	gauge("uptime_seconds", "Since the generator started.", one(func(s status) float64 { return s.UptimeS })),
	gauge("connections", "Connections that are open.", one(func(s status) int { return s.Connections })),
	gauge("requests_running", "Requests that hold a place in the batch.", one(func(s status) int { return s.Requests.Running })),
	gauge("requests_waiting", "Requests that wait for a place.", one(func(s status) int { return s.Requests.Waiting })),
	total("requests_refused", "Requests of which nothing was taken.", one(func(s status) uint64 { return s.Requests.Refused })),
	gauge("batch_limit", "Places in the batch.", one(func(s status) int { return s.Limits.MaxBatch })),
	total("steps", "Forward passes, by kind.", func(s status, to emit) {
		to(float64(s.Steps.Prefill), "prefill")
		to(float64(s.Steps.Decode), "decode")
	}, "kind"),
	total("sampled_tokens", "Tokens sampled. By steps, the mean batch.", one(func(s status) uint64 { return s.Steps.Tokens })),
	gauge("kv_pages", "Pages of the KV cache.", one(func(s status) int { return s.KV.Pages })),
	gauge("kv_pages_used", "Pages of the KV cache in use.", one(func(s status) int { return s.KV.Used })),
	gauge("graphs_live", "Graphs that a step can replay.", one(func(s status) int { return s.Graphs.Live })),
	gauge("graphs_limit", "Graphs that may exist at once.", one(func(s status) int { return s.Graphs.MaxGraphs })),
	gauge("graphs_refused", "Shapes whose captures failed too often to be tried again.", one(func(s status) int { return s.Graphs.Refused })),
	gauge("graphs_wished", "Shapes that steps missed and that may yet be captured.", one(func(s status) int { return s.Graphs.CaptureRequests })),
	total("graphs_captured", "Graphs captured, at start or while serving.", func(s status, to emit) {
		to(float64(s.Graphs.Precaptured), "start")
		to(float64(s.Graphs.Rolled), "serving")
	}, "when"),
	total("graphs_evicted", "Graphs taken out of use.", one(func(s status) uint64 { return s.Graphs.Evicted })),
	total("graphs_failed", "Captures that failed.", one(func(s status) uint64 { return s.Graphs.Failed })),
	total("graph_launches", "Steps by how they were launched: exact, padded or eager.", func(s status, to emit) {
		to(float64(s.Graphs.Exact), "exact")
		to(float64(s.Graphs.Padded), "padded")
		to(float64(s.Graphs.Eager), "eager")
	}, "kind"),
	total("graph_replays", "Steps by where their graph came from: precaptured, rolled, padded, or eager without one.", func(s status, to emit) {
		g := s.Steps.Graphs
		to(float64(g.Precaptured), "precaptured")
		to(float64(g.Rolled), "rolled")
		to(float64(g.Padded), "padded")
		to(float64(g.Eager), "eager")
	}, "kind"),
	total("graph_capture_seconds", "What captures took in all, at start or while serving.", func(s status, to emit) {
		to(s.Graphs.CaptureS, "start")
		to(s.Graphs.RollS, "serving")
	}, "when"),
	gauge("graph_capture_median_seconds", "What a capture at start took, as a median.", one(func(s status) float64 { return s.Graphs.CaptureMedianMS / 1000 })),
	gauge("graph_bytes", "Device memory that graphs take.", one(func(s status) int64 { return s.Graphs.Bytes })),
	gauge("memory_planned_bytes", "Device memory that was planned, by kind.", func(s status, to emit) {
		for _, m := range s.Memory {
			to(float64(m.Planned), m.Kind)
		}
	}, "kind"),
	gauge("memory_used_bytes", "Device memory in use, by kind. Other is the context's and other programs'.", func(s status, to emit) {
		for _, m := range s.Memory {
			to(float64(m.Used), m.Kind)
		}
	}, "kind"),
	gauge("device_memory_used_bytes", "Memory of the GPU in use, by all programs; on host of the generator.", one(func(s status) int64 { return s.Machine.MemoryUsed })),
	gauge("device_memory_total_bytes", "Memory that the GPU has, or the machine.", one(func(s status) int64 { return s.Machine.MemoryTotal })),
}

var gpuFigures = []figure[*gpu.Reading]{
	gauge("gpu_utilisation_ratio", "Share of the time in which a kernel ran.", known(func(g *gpu.Reading) *float64 { return g.Utilisation })),
	gauge("gpu_temperature_celsius", "Temperature of the GPU.", known(func(g *gpu.Reading) *float64 { return g.Temperature })),
	gauge("gpu_power_watts", "Power that the GPU draws.", known(func(g *gpu.Reading) *float64 { return g.Power })),
	gauge("gpu_throttling", "1 where clocks are held down for this reason.", func(g *gpu.Reading, to emit) {
		for reason, on := range g.Throttling {
			to(flag(on), reason)
		}
	}, "reason"),
	total("gpu_ecc_errors", "Errors of the GPU's memory over its life, corrected or not.", func(g *gpu.Reading, to emit) {
		for kind, n := range g.ECC {
			to(float64(n), kind)
		}
	}, "kind"),
	total("gpu_xid_errors", "Errors that the driver reported since the start, by Xid.", func(g *gpu.Reading, to emit) {
		for xid, n := range g.Xid {
			to(float64(n), strconv.FormatUint(xid, 10))
		}
	}, "xid"),
}

// known reads a number that a GPU may not tell.
func known(of func(*gpu.Reading) *float64) func(*gpu.Reading, emit) {
	return func(g *gpu.Reading, to emit) {
		if value := of(g); value != nil {
			to(*value)
		}
	}
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
