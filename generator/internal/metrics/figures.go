package metrics

import (
	"strconv"

	"reel.internal/reel/generator/internal/gpu"
	"reel.internal/reel/protocol"
)

type (
	status  = *protocol.Status
	reading = *gpu.Reading
)

// states are the states of a generator.
var states = []string{protocol.StateLoading, protocol.StateReady, protocol.StateDraining, protocol.StateFailed}

var statusFigures = []figure[status]{
	gauge("info", "Always 1: the program's version, the model, its device and the machine.",
		func(s status, to emit) { to(1, s.Version, s.Model, s.Device, s.Machine.Name) },
		"version", "model", "device", "machine"),
	gauge("state", "1 for the generator's state, 0 for the others.", func(s status, to emit) {
		for _, name := range states {
			to(flag(s.State == name), name)
		}
	}, "state"),
	gauge("uptime_seconds", "Time since the generator started.",
		one(func(s status) float64 { return s.UptimeS })),
	gauge("connections", "Open connections.",
		one(func(s status) int { return s.Connections })),
	gauge("requests_running", "Requests that hold a slot in the batch.",
		one(func(s status) int { return s.Requests.Running })),
	gauge("requests_waiting", "Requests that wait for a slot.",
		one(func(s status) int { return s.Requests.Waiting })),
	total("requests_refused", "Requests refused before they reached the engine.",
		one(func(s status) uint64 { return s.Requests.Refused })),
	gauge("batch_limit", "Slots in the batch.",
		one(func(s status) int { return s.Limits.MaxBatch })),
	total("steps", "Forward passes, by kind.", func(s status, to emit) {
		to(float64(s.Steps.Prefill), "prefill")
		to(float64(s.Steps.Decode), "decode")
		to(float64(s.Steps.Mixed), "mixed")
	}, "kind"),
	total("sampled_tokens", "Tokens sampled. Divided by steps: the mean batch.",
		one(func(s status) uint64 { return s.Steps.Tokens })),
	gauge("kv_pages", "Pages of the KV cache.",
		one(func(s status) int { return s.KV.Pages })),
	gauge("kv_pages_used", "Pages of the KV cache in use.",
		one(func(s status) int { return s.KV.Used })),
	gauge("cached_pages", "Pages that no request uses, with prompts that later ones may begin with, by tier.",
		func(s status, to emit) {
			to(float64(s.KV.Cached), "device")
			to(float64(s.KV.HostCached), "host")
			to(float64(s.Disk.Pages), "disk")
		}, "tier"),
	gauge("cache_dir_bytes", "Bytes of the files in --cache-dir.",
		one(func(s status) int64 { return s.Disk.Bytes })),
	gauge("cache_dir_bytes_limit", "Bytes that files in --cache-dir may take.",
		one(func(s status) int64 { return s.Disk.MaxBytes })),
	total("cache_dir_pages", "Pages read from files in --cache-dir, and written.", func(s status, to emit) {
		to(float64(s.Disk.Read), "read")
		to(float64(s.Disk.Written), "written")
	}, "direction"),
	total("cache_dir_hits", "Requests for which pages were read from files.",
		one(func(s status) uint64 { return s.Disk.Hits })),
	total("cache_dir_errors", "Damaged pages in --cache-dir, and errors of its file system.",
		one(func(s status) uint64 { return s.Disk.Errors })),
	total("cached_pages_evicted", "Cached pages that gave way to requests.",
		one(func(s status) uint64 { return s.KV.Evicted })),
	gauge("host_pages", "Pages that the tier in host memory holds at most.",
		one(func(s status) int { return s.KV.HostPages })),
	gauge("host_pages_of_requests", "Pages in host memory of requests that moved out and come back.",
		one(func(s status) int { return s.KV.HostSequences })),
	total("host_copied_bytes", "Bytes copied to the tier in host memory (out) and back (in).",
		func(s status, to emit) {
			to(float64(s.KV.Stored)*float64(s.KV.PageBytes), "out")
			to(float64(s.KV.Loaded)*float64(s.KV.PageBytes), "in")
		}, "direction"),
	total("requests_moved", "Moves of requests to host memory (out) and back (in).", func(s status, to emit) {
		to(float64(s.KV.MovedOut), "out")
		to(float64(s.KV.MovedIn), "in")
	}, "direction"),
	total("cache_requests", "Requests that looked for cached pages, by outcome.", func(s status, to emit) {
		to(float64(s.Cache.Hits), "hit")
		to(float64(s.Cache.Requests-s.Cache.Hits), "miss")
	}, "outcome"),
	total("cache_prompt_tokens", "Prompt tokens of these requests: cached, or computed.", func(s status, to emit) {
		to(float64(s.Cache.CachedTokens), "cached")
		to(float64(s.Cache.PromptTokens-s.Cache.CachedTokens), "computed")
	}, "source"),
	total("reread_tokens", "Tokens of answers that were read again for later prompts while nobody waited.",
		one(func(s status) uint64 { return s.Steps.RereadTokens })),
	total("engine_thread_seconds", "Time that the engine's thread worked between its waits for steps.",
		one(func(s status) float64 { return float64(s.Steps.HostUS) / 1e6 })),
	total("draft_steps", "Steps that checked guesses for a request, by what guessed and how many.",
		func(s status, to emit) {
			for _, c := range s.Drafts.Counts {
				to(float64(c.Steps), drafterOf(s, c), strconv.Itoa(c.Drafts))
			}
		}, "drafter", "drafts"),
	total("draft_tokens", "Guesses of these steps, by what became of them: accepted or rejected.",
		func(s status, to emit) {
			for _, c := range s.Drafts.Counts {
				to(float64(c.Accepted), drafterOf(s, c), strconv.Itoa(c.Drafts), "accepted")
				to(float64(c.Drafted-c.Accepted), drafterOf(s, c), strconv.Itoa(c.Drafts), "rejected")
			}
		}, "drafter", "drafts", "result"),
	gauge("graphs_live", "Graphs that a step can replay.",
		one(func(s status) int { return s.Graphs.Live })),
	gauge("graphs_limit", "Graphs that may exist at once.",
		one(func(s status) int { return s.Graphs.MaxGraphs })),
	gauge("graphs_refused", "Shapes whose captures failed too often to be tried again.",
		one(func(s status) int { return s.Graphs.Refused })),
	gauge("graphs_wished", "Shapes that steps missed and that may yet be captured.",
		one(func(s status) int { return s.Graphs.CaptureRequests })),
	total("graphs_captured", "Graphs captured, at start or while serving.", func(s status, to emit) {
		to(float64(s.Graphs.Precaptured), "start")
		to(float64(s.Graphs.Rolled), "serving")
	}, "when"),
	total("graphs_evicted", "Graphs taken out of use.",
		one(func(s status) uint64 { return s.Graphs.Evicted })),
	total("graphs_failed", "Captures that failed.",
		one(func(s status) uint64 { return s.Graphs.Failed })),
	total("graph_launches", "Steps by their launch: exact, padded or eager.", func(s status, to emit) {
		to(float64(s.Graphs.Exact), "exact")
		to(float64(s.Graphs.Padded), "padded")
		to(float64(s.Graphs.Eager), "eager")
	}, "kind"),
	total("graph_replays", "Steps by the origin of their graph: precaptured, rolled, padded, or eager without one.",
		func(s status, to emit) {
			g := s.Steps.Graphs
			to(float64(g.Precaptured), "precaptured")
			to(float64(g.Rolled), "rolled")
			to(float64(g.Padded), "padded")
			to(float64(g.Eager), "eager")
		}, "kind"),
	total("graph_capture_seconds", "Time of all captures, at start or while serving.", func(s status, to emit) {
		to(s.Graphs.CaptureS, "start")
		to(s.Graphs.RollS, "serving")
	}, "when"),
	gauge("graph_capture_median_seconds", "Median time of a capture at start.",
		one(func(s status) float64 { return s.Graphs.CaptureMedianMS / 1000 })),
	gauge("graph_bytes", "Device memory of graphs.",
		one(func(s status) int64 { return s.Graphs.Bytes })),
	gauge("memory_planned_bytes", "Planned device memory, by kind.", func(s status, to emit) {
		for _, m := range s.Memory {
			to(float64(m.Planned), m.Kind)
		}
	}, "kind"),
	gauge("memory_used_bytes", "Device memory in use, by kind. Other is the context's and other programs'.",
		func(s status, to emit) {
			for _, m := range s.Memory {
				to(float64(m.Used), m.Kind)
			}
		}, "kind"),
	gauge("device_memory_used_bytes", "GPU memory in use by all programs; on host, the generator's memory.",
		one(func(s status) int64 { return s.Machine.MemoryUsed })),
	gauge("device_memory_total_bytes", "Memory of the GPU; on host, of the machine.",
		one(func(s status) int64 { return s.Machine.MemoryTotal })),
}

var gpuFigures = []figure[reading]{
	gauge("gpu_utilisation_ratio", "Share of the time in which a kernel ran.",
		known(func(r reading) *float64 { return r.Utilisation }), "gpu"),
	gauge("gpu_temperature_celsius", "Temperature of the GPU.",
		known(func(r reading) *float64 { return r.Temperature }), "gpu"),
	gauge("gpu_power_watts", "Power that the GPU draws.",
		known(func(r reading) *float64 { return r.Power }), "gpu"),
	gauge("gpu_throttling", "1 if clocks are reduced for this reason.", func(r reading, to emit) {
		for reason, on := range r.Throttling {
			to(flag(on), reason)
		}
	}, "gpu", "reason"),
	total("gpu_ecc_errors", "Memory errors over the GPU's life, corrected or not.", func(r reading, to emit) {
		for kind, n := range r.ECC {
			to(float64(n), kind)
		}
	}, "gpu", "kind"),
	total("gpu_xid_errors", "Errors that the driver reported since the start, by Xid.", func(r reading, to emit) {
		for xid, n := range r.Xid {
			to(float64(n), strconv.FormatUint(xid, 10))
		}
	}, "gpu", "xid"),
}

// drafterOf returns the label of what guessed: the drafter's name, or "format".
func drafterOf(s status, c protocol.DraftCount) string {
	if c.Format {
		return "format"
	}
	return s.Drafts.Drafter
}
