package server

import (
	"errors"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// Engine makes completions.
type Engine interface {
	// Submit takes a request. Its Sink gets tokens, then one Finish. Errors:
	// engine.ErrBusy, engine.ErrDraining, engine.ErrTooLong, engine.ErrTooManyBiases.
	Submit(*engine.Request) (engine.Handle, error)
	// Expect wakes an idle engine: a client's requests are being read, until EndExpect.
	Expect()
	EndExpect()
	// Cancel ends a request early; its Sink still gets one Finish. It does nothing
	// for a request that has ended.
	Cancel(engine.Handle)
	Stats() engine.Stats
	// Reread computes pages of the beginning of a user's next prompt while nobody waits.
	Reread(user engine.User, tokens []int32)
	// Cached returns the cached pages that a user's prompts can find, and with drop drops
	// them first. It waits for a step to end. Errors: engine.ErrDraining, engine.ErrBusy.
	Cached(user engine.User, drop bool) (protocol.Cached, error)
}

// Tokenizer turns a prompt into tokens and a token into text. It is safe for concurrent
// use.
type Tokenizer interface {
	// EncodeMarked returns a prompt's tokens. Text that is data gives no control token.
	// postProcessor adds the tokens around a prompt, such as the one at its beginning; a chat
	// template writes them itself. An error that is a *protocol.Error is sent to the client.
	EncodeMarked(text marked.Text, postProcessor bool) ([]int32, error)
	TokenText(id int32) string
	MaxTokenBytes() int // of the longest token's text
}

// Decoder turns one completion's tokens into text. Each piece is valid UTF-8.
type Decoder interface {
	Push(id int32) string // returns the text that id completes, perhaps none
	Held() int            // returns the number of bytes of an incomplete character
	Flush() string        // returns the held bytes, made valid
}

// Chat renders conversations to prompts. It is safe for concurrent use.
type Chat interface {
	// Render returns the prompt for a validated conversation, of at most maxBytes bytes. What
	// comes from the request is marked as data, except for messages that are Special. An error
	// that is a *protocol.Error is sent to the client.
	Render(c Conversation, maxBytes int) (marked.Text, error)
	// Answers says how the model answers.
	Answers() Answers
}

// Conversation is what a chat template renders.
type Conversation struct {
	Messages  []protocol.Message
	Tools     string // JSON text; empty: none
	Variables protocol.Variables
}

// Answers says how a chat template has the model write reasoning and calls of tools.
type Answers struct {
	Form calls.Form
	// Control are the control tokens of the vocabulary that are markers of Form.
	Control map[int32]string
}

// Model is the model that a server serves.
type Model struct {
	Name      string
	Device    string
	Engine    Engine
	Embedding *Embedding // nil: the model draws tokens and makes no embeddings
	Chat      Chat       // nil: the model has no chat template that compiles
	Tokenizer Tokenizer
	Formats   Formats // nil: requests with a format are refused
	// FormatState returns the state of what follows formats; nil: there is none.
	FormatState func() protocol.Formats
	// ChatFailure is the reason why the model's chat template is not used; empty without one.
	ChatFailure string
	// ChatDefaults are the sampling defaults of conversations; nil: the protocol's.
	ChatDefaults *protocol.Sampling
	// Reread says which answers are reread; empty: none.
	Reread RereadMode
	// NewDecoder returns a decoder for the text that follows the tokens in after.
	NewDecoder func(after []int32) Decoder
	// Limits needs Context, MaxBatch and Vocab, and Queue if it is not the protocol's; the server adds its own.
	Limits protocol.Limits
	Shape  protocol.Shape
	// Planned is the plan's size of the ready model's device memory, in bytes; 0: there
	// is no plan.
	Planned int64
	// Taken returns the bytes of device memory that the process has taken, and the source
	// of the number; nil: there is no source.
	Taken func() (bytes int64, by string)
	// Memory is the plan's device memory by kind: of each of the GPUs that share the model, or of all of them if they are
	// simulated and share the host's.
	Memory []protocol.MemoryUse
	// GPUs is how many share the model; 0 is one.
	GPUs      int
	Simulated bool
	// Machine is called for each status; it may be nil.
	Machine func() protocol.Machine
	// Identity returns the digest of all that decides tokens, or "" while it is unknown; it may be nil.
	Identity func() string
	// Verify returns an error if the weights' files have changed since they were loaded.
	// It reads files, so the engine's thread must not call it. nil: the weights cannot
	// change.
	Verify func() error
}

// Together returns how many GPUs share the memory that is planned: several simulated ones, or one.
func (m *Model) Together() int64 {
	if m.Simulated {
		return int64(max(1, m.GPUs))
	}
	return 1
}

// identity returns the model's identity, or "" while it is unknown.
func (m *Model) identity() string {
	if m.Identity == nil {
		return ""
	}
	return m.Identity()
}

// Cause returns the cause of err, which ended the engine or a request: Verify's error if
// changed weights may explain err, otherwise err itself.
func (m *Model) Cause(err error) error {
	if m.Verify == nil || !errors.Is(err, engine.ErrNumeric) && !errors.Is(err, engine.ErrDevice) {
		return err
	}
	if changed := m.Verify(); changed != nil {
		return changed
	}
	return err
}
