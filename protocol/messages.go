// Package protocol defines the messages between a Reel client and a Reel generator:
// frames, messages, bounds and error codes. PROTOCOL.md in this directory is the
// specification; this package is its Go form.
package protocol

// Version is the protocol version of this package. A client names its version in hello;
// a generator that does not speak it answers with CodeUnsupportedVersion.
const Version = 1

// Message types: the values of the field "type" of every frame.
const (
	// From client to generator.
	TypeHello    = "hello"
	TypeGenerate = "generate"
	TypeCancel   = "cancel"
	TypeStatus   = "status" // also the reply's type
	TypeTokenize = "tokenize"
	TypeCache    = "cache"
	TypeEmbed    = "embed"
	TypeSleep    = "sleep"

	// From generator to client.
	TypeWelcome = "welcome"
	TypeToken   = "token"
	TypeDone    = "done"
	TypeError   = "error"
	TypeTokens  = "tokens"
	TypeCached  = "cached"
	// TypeEmbedding and TypeSleeping were added to version 1.
	TypeEmbedding = "embedding"
	TypeSleeping  = "sleeping"
)

// Reasons why a completion ends: the values of the field finish_reason of done.
const (
	FinishStop      = "stop"      // end-of-sequence token or a stop string
	FinishLength    = "length"    // max_tokens or the end of the context was reached
	FinishCancelled = "cancelled" // the client cancelled the request
	// FinishToolCalls: the completion ended by itself, and calls tools. It was added to version 1.
	FinishToolCalls = "tool_calls"
)

// Hello is the first frame of every connection.
type Hello struct {
	Type    string `msgpack:"type"`
	Version int    `msgpack:"version"`
}

// Message is one message of a conversation.
type Message struct {
	Role    string `msgpack:"role" json:"role"` // as in the model's template: system, user, assistant
	Content string `msgpack:"content" json:"content"`
	// Special: a control token that the message spells, such as <|im_end|>, is encoded as
	// that token, otherwise as text. It was added to version 1.
	Special bool `msgpack:"special,omitempty" json:"special,omitempty"`
	// The fields below were added to version 1. A template gets those that are not empty.

	// Reasoning is what the assistant thought before Content.
	Reasoning string `msgpack:"reasoning,omitempty" json:"reasoning,omitempty"`
	// Name is the speaker's name, or that of the tool whose result Content is.
	Name string `msgpack:"name,omitempty" json:"name,omitempty"`
	// ToolCallID names the call whose result Content is.
	ToolCallID string `msgpack:"tool_call_id,omitempty" json:"tool_call_id,omitempty"`
	// ToolCalls are the calls that the assistant made.
	ToolCalls []ToolCall `msgpack:"tool_calls,omitempty" json:"tool_calls,omitempty"`
}

// Generate requests one completion. Exactly one of Prompt, Tokens and Messages is given. A
// nil pointer means the default; PROTOCOL.md lists defaults and bounds.
type Generate struct {
	Type string `msgpack:"type"`
	// ID is chosen by the client and unique among its running requests.
	ID     uint64   `msgpack:"id"`
	Prompt *string  `msgpack:"prompt,omitempty"`
	Tokens TokenIDs `msgpack:"tokens,omitempty"`
	// Messages is the conversation that the completion answers.
	Messages []Message `msgpack:"messages,omitempty"`
	// Special says how a control token that Prompt spells is encoded: nil or true, as that
	// token; false, as text. Each message has a Special of its own.
	Special *bool `msgpack:"special,omitempty"`
	// Template sets variables of the chat template that renders Messages.
	Template      Variables `msgpack:"template,omitempty"`
	MaxTokens     *int      `msgpack:"max_tokens,omitempty"`
	Temperature   *float64  `msgpack:"temperature,omitempty"`
	TopK          *int      `msgpack:"top_k,omitempty"`
	TopP          *float64  `msgpack:"top_p,omitempty"`
	MinP          *float64  `msgpack:"min_p,omitempty"`
	RepeatPenalty *float64  `msgpack:"repeat_penalty,omitempty"`
	Seed          *uint64   `msgpack:"seed,omitempty"`
	Stop          []string  `msgpack:"stop,omitempty"`
	Logprobs      *int      `msgpack:"logprobs,omitempty"`
	Echo          bool      `msgpack:"echo,omitempty"`
	IgnoreEOS     bool      `msgpack:"ignore_eos,omitempty"`
	// Cache is one of the Cache… values; nil: CacheOn. It was added to version 1.
	Cache *string `msgpack:"cache,omitempty"`
	// The fields below were added to version 1.

	// PresencePenalty is subtracted from the logit of each token that the completion has so far,
	// FrequencyPenalty once for each time that it has it.
	PresencePenalty  *float64 `msgpack:"presence_penalty,omitempty"`
	FrequencyPenalty *float64 `msgpack:"frequency_penalty,omitempty"`
	// LogitBias is added to the logits of these tokens.
	LogitBias []Bias `msgpack:"logit_bias,omitempty"`
	// User divides the peer's uid into users of its own; nil and "" are the same user.
	User *string `msgpack:"user,omitempty"`
	// Format bounds the completion to texts of a form.
	Format *Format `msgpack:"format,omitempty"`
	// Tools is the JSON text of a list of tools, as OpenAI's API has it.
	Tools *string `msgpack:"tools,omitempty"`
	// ToolChoice is one of the Tool… values; nil: ToolAuto with Tools.
	ToolChoice *string `msgpack:"tool_choice,omitempty"`
	// ToolName is the name of the tool that must be called; ToolChoice is then nil.
	ToolName *string `msgpack:"tool_name,omitempty"`
	// ParallelToolCalls false allows one call at most; nil: any number.
	ParallelToolCalls *bool `msgpack:"parallel_tool_calls,omitempty"`
	// Reasoning is one of the Reasoning… values; nil: ReasoningText.
	Reasoning *string `msgpack:"reasoning,omitempty"`
	// Draft bounds the guesses of a step; nil: as many as the generator guesses.
	Draft *Draft `msgpack:"draft,omitempty"`
	// Prediction is what a generator with the drafter DrafterGiven guesses, by the completion's index.
	Prediction TokenIDs `msgpack:"prediction,omitempty"`
	// Count: only the number of the prompt's tokens is wanted. Done has it, and nothing is computed.
	Count bool `msgpack:"count,omitempty"`
}

// Bias is added to the logit of a token.
type Bias struct {
	Token int32   `msgpack:"token" json:"token"`
	Bias  float64 `msgpack:"bias" json:"bias"`
}

// Cancel ends the running or queued request ID of this connection. An ID that is not
// running is ignored, since it may have finished while the cancel was on its way.
type Cancel struct {
	Type string `msgpack:"type"`
	ID   uint64 `msgpack:"id"`
}

// StatusRequest requests a Status.
type StatusRequest struct {
	Type string `msgpack:"type"`
}

// Tokenize requests the tokens of Text as a prompt.
type Tokenize struct {
	Type string `msgpack:"type"`
	Text string `msgpack:"text"`
	// Special is like that of Generate.
	Special *bool `msgpack:"special,omitempty"`
}

// Welcome answers hello once the generator can serve generate.
type Welcome struct {
	Type    string `msgpack:"type"`
	Version int    `msgpack:"version"`
	// Model is the name of the model being served.
	Model  string `msgpack:"model"`
	Limits Limits `msgpack:"limits"`
	// Chat means that the model has a chat template, so generate takes Messages. It
	// was added to version 1; older generators omit it, which reads as false.
	Chat bool `msgpack:"chat,omitempty"`
	// Identity is a hash of weights, tokenizer, chat template, kind of device and kernels: two
	// generators of one identity give the same tokens. Empty while it is computed. It was added
	// to version 1.
	Identity string `msgpack:"identity,omitempty"`
	// Tools means that the chat template shows tools and that the model's calls are read;
	// Reasoning, that it reasons before an answer. They were added to version 1.
	Tools     bool `msgpack:"tools,omitempty"`
	Reasoning bool `msgpack:"reasoning,omitempty"`
	// Drafter is what guesses tokens, one of the Drafter… values; empty: nothing does. It was added to version 1.
	Drafter string `msgpack:"drafter,omitempty"`
	// Embeddings means that the model is for embeddings: it answers embed and refuses generate. It was added to version
	// 1; nil: it answers generate and refuses embed.
	Embeddings *Embeddings `msgpack:"embeddings,omitempty"`
}

// Token carries one token of a completion or, with echo, of the prompt. Its JSON form has
// neither type nor id.
type Token struct {
	Type string `msgpack:"type" json:"-"`
	ID   uint64 `msgpack:"id" json:"-"`
	// Index counts the completion's tokens from 0. Echoed prompt tokens come
	// first, from -prompt_tokens to -1.
	Index int   `msgpack:"index" json:"index"`
	Token int32 `msgpack:"token" json:"token"`
	// Text is valid UTF-8 and may be empty. A token is held back while its bytes may
	// still become part of a character or of a stop string: see PROTOCOL.md.
	Text string `msgpack:"text" json:"text"`
	// Logprob is the natural logarithm of the token's probability in the model's
	// distribution, before any filter; nil unless logprobs was requested.
	Logprob *float64 `msgpack:"logprob,omitempty" json:"logprob,omitempty"`
	// Top holds the most probable tokens, as many as logprobs requests, most probable first.
	Top []TopToken `msgpack:"top,omitempty" json:"top,omitempty"`
	// Reasoning is text of the model's reasoning, with ReasoningApart; Text is then the answer's
	// part. It was added to version 1.
	Reasoning string `msgpack:"reasoning,omitempty" json:"reasoning,omitempty"`
	// Calls are pieces of tool calls, which are then not in Text. They were added to version 1.
	Calls []CallPiece `msgpack:"calls,omitempty" json:"calls,omitempty"`
}

// TopToken is one alternative for a token.
type TopToken struct {
	Token   int32   `msgpack:"token" json:"token"`
	Text    string  `msgpack:"text" json:"text"`
	Logprob float64 `msgpack:"logprob" json:"logprob"`
}

// Done ends a completion that did not fail. Its JSON form has neither type nor id.
type Done struct {
	Type         string `msgpack:"type" json:"-"`
	ID           uint64 `msgpack:"id" json:"-"`
	FinishReason string `msgpack:"finish_reason" json:"finish_reason"`
	// Stop is the stop string before which the completion was cut; empty: it was not. It was added to version 1.
	Stop   string `msgpack:"stop,omitempty" json:"stop,omitempty"`
	Usage  Usage  `msgpack:"usage" json:"usage"`
	Timing Timing `msgpack:"timing" json:"timing"`
	Graphs Graphs `msgpack:"graphs" json:"graphs"`
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int `msgpack:"prompt_tokens" json:"prompt_tokens"`
	CompletionTokens int `msgpack:"completion_tokens" json:"completion_tokens"`
	// CachedTokens is the number of prompt tokens whose keys and values were there from other prompts.
	CachedTokens int `msgpack:"cached_tokens,omitempty" json:"cached_tokens"`
	// DraftedTokens were guessed and verified beside tokens that were drawn, and AcceptedTokens are those
	// of them that the completion has. Both were added to version 1; 0: nothing was guessed.
	DraftedTokens  int `msgpack:"drafted_tokens,omitempty" json:"drafted_tokens,omitempty"`
	AcceptedTokens int `msgpack:"accepted_tokens,omitempty" json:"accepted_tokens,omitempty"`
}

// Timing gives the phases of a request, in milliseconds by the generator's clock.
type Timing struct {
	QueueMS   float64 `msgpack:"queue_ms" json:"queue_ms"`     // from receipt to admission
	PrefillMS float64 `msgpack:"prefill_ms" json:"prefill_ms"` // from admission to the first token
	TTFTMS    float64 `msgpack:"ttft_ms" json:"ttft_ms"`       // from receipt to the first token
	TotalMS   float64 `msgpack:"total_ms" json:"total_ms"`     // from receipt to the end of the completion
}

// Graphs counts the steps that served a request by the way they were launched.
type Graphs struct {
	Precaptured int `msgpack:"precaptured" json:"precaptured"` // replayed a graph captured at start
	Rolled      int `msgpack:"rolled" json:"rolled"`           // replayed a graph captured while serving
	Padded      int `msgpack:"padded" json:"padded"`           // replayed a larger graph with padding
	Eager       int `msgpack:"eager" json:"eager"`             // launched op by op
}

// Tokens answers tokenize.
type Tokens struct {
	Type   string   `msgpack:"type"`
	Tokens TokenIDs `msgpack:"tokens"`
}

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
	// requests whose pages were.
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
	Tokens  uint64 `msgpack:"tokens" json:"tokens"` // tokens sampled
	Graphs  Graphs `msgpack:"graphs" json:"graphs"`
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
