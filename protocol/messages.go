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
