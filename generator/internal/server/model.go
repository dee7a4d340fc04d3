package server

import (
	"errors"

	"reel/generator/internal/engine"
	"reel/protocol"
)

// Engine makes completions.
type Engine interface {
	// Submit takes a request, whose Sink then gets tokens and one Finish.
	// Errors: engine.ErrBusy, engine.ErrDraining, engine.ErrTooLong.
	Submit(*engine.Request) (engine.Handle, error)
	// Expect says that a request may come in a moment.
	Expect()
	// Cancel ends a request early; its Sink still gets its one Finish. A
	// request that has ended is left alone.
	Cancel(engine.Handle)
	Stats() engine.Stats
}

// Tokenizer turns a prompt into tokens and a token into text. It is safe for
// use by several goroutines.
type Tokenizer interface {
	Encode(text string) ([]int32, error)
	// EncodeRendered is Encode for text that a chat template has made.
	EncodeRendered(text string) ([]int32, error)
	TokenText(id int32) string
	MaxTokenBytes() int // of the longest token's text
}

// Decoder turns one completion's tokens into text, valid UTF-8 at every piece.
type Decoder interface {
	Push(id int32) string // the text that id completes, perhaps none
	Held() int            // bytes that wait for the rest of a character
	Flush() string        // what is held, made valid
}

// Chat makes prompts of conversations. It is safe for use by several goroutines.
type Chat interface {
	// Render returns the prompt that messages make, of at most so many bytes.
	// An error that is a *protocol.Error goes to the client.
	Render(messages []protocol.Message, most int) (string, error)
}

// Model is what a server serves.
type Model struct {
	Name      string
	Device    string
	Engine    Engine
	Chat      Chat // nil where the model has no chat template
	Tokenizer Tokenizer
	// NewDecoder makes one for the text of what follows the tokens in after.
	NewDecoder func(after []int32) Decoder
	// Limits needs Context, MaxBatch and Vocab; the server fills in its own.
	Limits protocol.Limits
	Shape  protocol.Shape
	// Planned is what the model takes of the device when it is ready, in bytes, as it
	// was reckoned before any was taken; 0 where memory is not planned.
	Planned int64
	// Taken is what it did take, and who says so; nil where nobody does.
	Taken func() (bytes int64, by string)
	// Memory is what the plan takes of the device, by kind.
	Memory []protocol.MemoryUse
	// Machine is asked for each status.
	Machine func() protocol.Machine
	// Verify returns an error where the weights are no longer those that were loaded.
	// It reads files, so the engine's thread does not call it. nil where weights
	// cannot change.
	Verify func() error
}

// Cause returns the cause of err, with which the engine or a request ended: changed
// weights where err may come of those and Verify finds them, else err.
func (m *Model) Cause(err error) error {
	if m.Verify == nil || !errors.Is(err, engine.ErrNumeric) && !errors.Is(err, engine.ErrDevice) {
		return err
	}
	if changed := m.Verify(); changed != nil {
		return changed
	}
	return err
}

// limits completes a model's limits with the server's; s.mu is held.
func (s *Server) limits(m *Model) protocol.Limits {
	l := m.Limits
	l.PromptBytes = l.Context * m.Tokenizer.MaxTokenBytes()
	l.Frame = protocol.MaxFrame
	l.Requests = s.bounds.requests
	l.Connections = s.bounds.connections
	l.Queue = protocol.MaxQueue
	return l
}
