package protocol

// States of a generator: the values of the field state of status.
const (
	StateLoading  = "loading"
	StateReady    = "ready"
	StateDraining = "draining"
	StateFailed   = "failed"
	StateSleeping = "sleeping" // only of a Record
)

// Status answers a status request.
type Status struct {
	Type     string  `msgpack:"type" json:"-"`
	State    string  `msgpack:"state" json:"state"`
	Version  string  `msgpack:"version" json:"version"` // of the generator program
	Model    string  `msgpack:"model" json:"model"`
	Device   string  `msgpack:"device" json:"device"`
	PID      int     `msgpack:"pid" json:"pid"`
	UptimeS  float64 `msgpack:"uptime_s" json:"uptime_s"`
	Progress float64 `msgpack:"progress" json:"progress"` // of loading, 0 to 1
	// Doing is the current stage of loading, and Failure the reason for a failure.
	// Both were added to version 1 and are empty otherwise.
	Doing   string   `msgpack:"doing,omitempty" json:"doing,omitempty"`
	Failure *Failure `msgpack:"failure,omitempty" json:"failure,omitempty"`

	Connections int      `msgpack:"connections" json:"connections"`
	Requests    Requests `msgpack:"requests" json:"requests"`
	KV          KV       `msgpack:"kv" json:"kv"`
	Steps       Steps    `msgpack:"steps" json:"steps"`
	// Graphs was added to version 1; it is zero if an older generator omits it.
	Graphs GraphPool `msgpack:"graphs,omitempty" json:"graphs"`
	Limits Limits    `msgpack:"limits" json:"limits"`
	// Machine and Shape were added to version 1 too.
	Machine Machine `msgpack:"machine,omitempty" json:"machine"`
	Shape   Shape   `msgpack:"shape,omitempty" json:"shape"`
	// Memory was added to version 1: the generator's use of the device's memory by
	// kind, empty while it loads.
	Memory []MemoryUse `msgpack:"memory,omitempty" json:"memory"`
	// Reserve was added to version 1: the capacity that one user cannot take.
	Reserve Reserve `msgpack:"reserve,omitempty" json:"reserve"`
	// ChatFailure was added to version 1: the reason why the model's chat template is not
	// used; empty if it is used or missing.
	ChatFailure string `msgpack:"chat_failure,omitempty" json:"chat_failure,omitempty"`
	// ChatDefaults was added to version 1: the values of fields that a conversation leaves
	// out; nil while unknown, and of a model without chat.
	ChatDefaults *Sampling `msgpack:"chat_defaults,omitempty" json:"chat_defaults,omitempty"`
	// Identity was added to version 1: that of welcome; empty while it is unknown.
	Identity string `msgpack:"identity,omitempty" json:"identity,omitempty"`
	// Cache was added to version 1: what the prefix cache did.
	Cache Cache `msgpack:"cache,omitempty" json:"cache"`
	// Disk was added to version 1: the pages in files; zero without a directory for them.
	Disk Disk `msgpack:"disk,omitempty" json:"disk"`
	// Formats was added to version 1: the state of what follows formats.
	Formats Formats `msgpack:"formats,omitempty" json:"formats"`
	// Drafts was added to version 1: what guesses tokens, and how often it was right.
	Drafts Drafts `msgpack:"drafts,omitempty" json:"drafts"`
	// Embeddings was added to version 1: that of welcome; nil while unknown, and of a model that draws tokens.
	Embeddings *Embeddings `msgpack:"embeddings,omitempty" json:"embeddings,omitempty"`
	// IdleS was added to version 1: the seconds since the last request ended, or since the model was
	// loaded; 0 during a request, and while the generator is not ready.
	IdleS float64 `msgpack:"idle_s,omitempty" json:"idle_s"`
}

// Failure is the reason why a generator cannot serve.
type Failure struct {
	Code    string `msgpack:"code" json:"code"` // one of the error codes
	Message string `msgpack:"message" json:"message"`
	Hint    string `msgpack:"hint,omitempty" json:"hint,omitempty"`
}

// Machine describes the machine and GPU of the generator.
type Machine struct {
	Name   string `msgpack:"name" json:"name"`     // of the GPU or the processor
	Driver string `msgpack:"driver" json:"driver"` // version of the GPU driver; empty on host
	// MemoryUsed is in bytes: all programs' use of the GPU, or this process's on host.
	MemoryUsed  int64 `msgpack:"memory_used" json:"memory_used"`
	MemoryTotal int64 `msgpack:"memory_total" json:"memory_total"` // bytes of the GPU, or of the machine
}

// Kinds of device memory: the values of the field kind of MemoryUse.
const (
	MemoryWeights = "weights"
	MemoryKV      = "kv"     // the pool of KV pages
	MemoryArena   = "arena"  // activations, slots, workspaces of kernels
	MemoryGraphs  = "graphs" // captured graphs; planned is their budget
	MemoryOther   = "other"  // context, kernels, libraries; other programs' too if indistinguishable
)

// MemoryUse is the planned and the actual use of one kind of device memory.
type MemoryUse struct {
	Kind    string `msgpack:"kind" json:"kind"`
	Planned int64  `msgpack:"planned" json:"planned"` // bytes
	Used    int64  `msgpack:"used" json:"used"`       // bytes
}

// Shape holds the model's dimensions.
type Shape struct {
	Layers      int   `msgpack:"layers" json:"layers"`
	Hidden      int   `msgpack:"hidden" json:"hidden"` // width of the residual stream
	Inner       int   `msgpack:"inner" json:"inner"`   // width of the feed-forward
	Heads       int   `msgpack:"heads" json:"heads"`
	KVHeads     int   `msgpack:"kv_heads" json:"kv_heads"`
	HeadDim     int   `msgpack:"head_dim" json:"head_dim"`
	WeightBytes int64 `msgpack:"weight_bytes" json:"weight_bytes"` // of the matrices in device memory
	// StepBytes are the weight bytes that a decode step reads: all except an embedding
	// that is not also the output head. Added to version 1; 0: unknown.
	StepBytes int64 `msgpack:"step_bytes,omitempty" json:"step_bytes,omitempty"`
	// RoPE is the scaling that extends the context, with the set of its factors in use. Added to version 1; empty:
	// none.
	RoPE string `msgpack:"rope,omitempty" json:"rope,omitempty"`
}

// Requests counts requests since the generator started.
type Requests struct {
	Running   int    `msgpack:"running" json:"running"`
	Waiting   int    `msgpack:"waiting" json:"waiting"`
	Finished  uint64 `msgpack:"finished" json:"finished"`
	Cancelled uint64 `msgpack:"cancelled" json:"cancelled"`
	Failed    uint64 `msgpack:"failed" json:"failed"`
	Refused   uint64 `msgpack:"refused" json:"refused"` // busy, draining or out of bounds
}

// KV describes the pool of KV pages.
type KV struct {
	PageTokens int   `msgpack:"page_tokens" json:"page_tokens"` // tokens per page
	Pages      int   `msgpack:"pages" json:"pages"`
	Used       int   `msgpack:"used" json:"used"`   // pages
	Bytes      int64 `msgpack:"bytes" json:"bytes"` // of the whole pool
	// PageBytes are the bytes of one page; 0 if an older generator omits it.
	PageBytes int64 `msgpack:"page_bytes,omitempty" json:"page_bytes"`
	// Cached is the number of pages that no request uses, with prompts that later ones may begin with.
	Cached int `msgpack:"cached,omitempty" json:"cached"`
	// Evicted counts the cached pages that gave way to requests since the start.
	Evicted uint64 `msgpack:"evicted,omitempty" json:"evicted"`
	// HostPages is the size of the host tier in pages; HostCached and HostSequences are the pages in it that later
	// prompts may begin with, and those of requests that moved out and come back.
	HostPages     int `msgpack:"host_pages,omitempty" json:"host_pages"`
	HostCached    int `msgpack:"host_cached,omitempty" json:"host_cached"`
	HostSequences int `msgpack:"host_sequences,omitempty" json:"host_sequences"`
	// HostBytes is the most that the host tier may take; it grows to that after the start.
	HostBytes int64 `msgpack:"host_bytes,omitempty" json:"host_bytes"`
	// Stored and Loaded count pages copied to the host tier and back since the start; MovedOut and MovedIn count
	// requests that moved there and back with all their pages.
	Stored   uint64 `msgpack:"stored,omitempty" json:"stored"`
	Loaded   uint64 `msgpack:"loaded,omitempty" json:"loaded"`
	MovedOut uint64 `msgpack:"moved_out,omitempty" json:"moved_out"`
	MovedIn  uint64 `msgpack:"moved_in,omitempty" json:"moved_in"`
}

// States of the directory in which KV pages outlive a restart.
const (
	DiskOpening = "opening" // its pages are found when the generator has read all weights again
	DiskUsed    = "used"
	DiskOff     = "off" // it could not be opened, or an error of the file system ended its use: the log has the cause
)

// Disk describes the KV pages in files. Counts are since the directory was opened.
type Disk struct {
	State    string `msgpack:"state" json:"state"` // one of the Disk… values; empty: there is no directory
	Bytes    int64  `msgpack:"bytes" json:"bytes"` // of all files, those of other models too
	MaxBytes int64  `msgpack:"max_bytes" json:"max_bytes"`
	Pages    int    `msgpack:"pages" json:"pages"` // that prompts can find
	Hits     uint64 `msgpack:"hits" json:"hits"`   // requests for which pages were read
	Read     uint64 `msgpack:"read" json:"read"`   // pages
	Written  uint64 `msgpack:"written" json:"written"`
	Errors   uint64 `msgpack:"errors" json:"errors"` // damaged pages, and errors of the file system
}

// Sampling holds a value for each field of a request that shapes the distribution.
type Sampling struct {
	Temperature   float64 `msgpack:"temperature" json:"temperature"`
	TopK          int     `msgpack:"top_k" json:"top_k"`
	TopP          float64 `msgpack:"top_p" json:"top_p"`
	MinP          float64 `msgpack:"min_p" json:"min_p"`
	RepeatPenalty float64 `msgpack:"repeat_penalty" json:"repeat_penalty"`
}

// Reserve is the capacity that one user leaves to others: that many further users each
// find a slot at once, with pages for a request of Tokens tokens.
type Reserve struct {
	Slots  int `msgpack:"places" json:"places"` // of the batch, beyond Limits.MaxBatch
	Pages  int `msgpack:"pages" json:"pages"`   // KV pages for all these slots together
	Tokens int `msgpack:"tokens" json:"tokens"` // prompt and completion of one request
}

// Steps counts forward passes since the generator started.
type Steps struct {
	Prefill uint64 `msgpack:"prefill" json:"prefill"`
	Decode  uint64 `msgpack:"decode" json:"decode"`
	// Mixed counts the passes with the next tokens of running requests and tokens of prompts, which count nowhere else. It
	// was added to version 1.
	Mixed  uint64 `msgpack:"mixed,omitempty" json:"mixed"`
	Tokens uint64 `msgpack:"tokens" json:"tokens"` // tokens sampled
	Graphs Graphs `msgpack:"graphs" json:"graphs"`
	// Rereads counts the answers that were read again while nobody waited, so that the next prompts
	// find their pages, and RereadTokens the tokens computed for that. These steps count nowhere else.
	// Both were added to version 1.
	Rereads      uint64 `msgpack:"rereads,omitempty" json:"rereads"`
	RereadTokens uint64 `msgpack:"reread_tokens,omitempty" json:"reread_tokens"`
	// HostUS is the time in microseconds that the engine's thread worked between its waits for steps. It was added
	// to version 1.
	HostUS uint64 `msgpack:"host_us,omitempty" json:"host_us"`
}

// GraphPool describes the captured graphs. Counts are since the generator started.
type GraphPool struct {
	Live        int    `msgpack:"live" json:"live"`
	MaxGraphs   int    `msgpack:"max_graphs" json:"max_graphs"`
	Bytes       int64  `msgpack:"bytes" json:"bytes"`             // of device memory, retired graphs included
	Budget      int64  `msgpack:"budget" json:"budget"`           // bytes
	Precaptured uint64 `msgpack:"precaptured" json:"precaptured"` // graphs captured at start
	Rolled      uint64 `msgpack:"rolled" json:"rolled"`           // graphs captured while serving
	Evicted     uint64 `msgpack:"evicted" json:"evicted"`
	Failed      uint64 `msgpack:"failed" json:"failed"`                       // captures that failed
	Failure     string `msgpack:"failure,omitempty" json:"failure,omitempty"` // of the last failed capture
	Refused     int    `msgpack:"refused" json:"refused"`                     // shapes that failed too often
	Exact       uint64 `msgpack:"exact" json:"exact"`                         // steps with a graph of their shape
	Padded      uint64 `msgpack:"padded" json:"padded"`                       // steps that replayed a larger graph
	Eager       uint64 `msgpack:"eager" json:"eager"`                         // steps launched op by op
	// CaptureRequests are the shapes that steps missed and that may yet be captured.
	CaptureRequests int    `msgpack:"wishes" json:"wishes"`
	Roller          string `msgpack:"roller" json:"roller"` // the roller's current activity
	// CaptureS is the duration of the captures at start in seconds. Added to version 1.
	CaptureS float64 `msgpack:"capture_s,omitempty" json:"capture_s"`
	// CaptureMedianMS is the median time to capture, instantiate and upload one of those
	// graphs, in milliseconds, and GraphBytes the device memory per graph. Added to version 1.
	CaptureMedianMS float64 `msgpack:"capture_median_ms,omitempty" json:"capture_median_ms"`
	GraphBytes      int64   `msgpack:"graph_bytes,omitempty" json:"graph_bytes"`
	// RollS is the time of the device calls of captures while serving, in seconds. Added
	// to version 1.
	RollS float64 `msgpack:"roll_s,omitempty" json:"roll_s"`
}
