package server

import (
	"context"
	"time"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// Formats compiles the formats of requests. It is safe for concurrent use.
type Formats interface {
	// Compile returns what follows the format of one request; it may take seconds. Whoever gets it closes it. user
	// identifies the sender. An error that is a *protocol.Error is sent to the client. When ctx ends, Compile returns.
	Compile(ctx context.Context, user engine.User, f protocol.Format) (engine.Format, error)
	// CompileAfter is Compile for a format after reasoning, in the form of [calls.Thoughts], which may have control
	// tokens.
	CompileAfter(ctx context.Context, user engine.User, f protocol.Format, think string,
		control []int32) (engine.Format, error)
	// CompileCalls is Compile for calls of tools, in a form of [calls.Required], which may have control tokens.
	CompileCalls(ctx context.Context, user engine.User, text string, control []int32) (engine.Format, error)
}

// form compiles what a completion has to be.
type form func(ctx context.Context, user engine.User) (engine.Format, error)

// form returns what a request's completion has to be; nil: anything. place says where the prompt ends.
func (m *Model) form(g *protocol.Generate, place calls.Place) (form, *protocol.Error) {
	switch {
	case g.Format == nil && !mustCall(g):
		return nil, nil
	case g.Format != nil:
		return m.formatted(g, place), nil
	}
	a := m.Chat.Answers()
	required, err := calls.NewRequired(a.Form, a.Control, requiredTools(g), g.ToolName != nil || callsOnce(g),
		place == calls.Within)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeFormatUnavailable,
			"leave tool_choice and tool_name out, so that the model may call", "a call cannot be required: %v", err)
	}
	text, control := required.Text()
	return func(ctx context.Context, user engine.User) (engine.Format, error) {
		return m.Formats.CompileCalls(ctx, user, text, control)
	}, nil
}

// formatted returns the format of a request, after reasoning if there may be some.
func (m *Model) formatted(g *protocol.Generate, place calls.Place) form {
	thoughts, may := m.thoughts(g, place)
	if !may {
		return func(ctx context.Context, user engine.User) (engine.Format, error) {
			return m.Formats.Compile(ctx, user, *g.Format)
		}
	}
	text, control := thoughts.Text()
	return func(ctx context.Context, user engine.User) (engine.Format, error) {
		return m.Formats.CompileAfter(ctx, user, *g.Format, text, control)
	}
}

// thoughts returns the reasoning that may come before a request's format; false: none. A prompt that the chat template
// did not write says nothing of reasoning: after it the format begins at once.
func (m *Model) thoughts(g *protocol.Generate, place calls.Place) (calls.Thoughts, bool) {
	if m.Chat == nil || g.Messages == nil {
		return calls.Thoughts{}, false
	}
	a := m.Chat.Answers()
	return calls.NewThoughts(a.Form, a.Control, place)
}

// noFormats returns the error for a request with a format if the generator follows none.
func noFormats() *protocol.Error {
	return protocol.Errorf(protocol.CodeFormatUnavailable,
		"leave the format out, or ask the operator to install reel-format beside reel-generator",
		"this generator follows no formats")
}

// formatted is a request with a format until it is submitted. Its format is compiled on the request's goroutine, so
// that the connection's reader serves other messages, a cancel among them.
type formatted struct {
	message  *protocol.Generate
	received time.Time
	held     *reservation // the message's bytes
	ctx      context.Context
}

// follow makes r a request whose format is compiled by streamFormatted. It takes over the bytes that the connection's
// reader reserved for the message.
func (r *request) follow(m *protocol.Generate, received time.Time) *formatted {
	f := &formatted{message: m, received: received, held: r.c.reservation.hand()}
	f.ctx, r.abort = context.WithCancel(r.c.server.closing)
	return f
}

// streamFormatted compiles the format, submits the request and streams its completion. A format that is refused ends
// the request like any other refusal.
func (r *request) streamFormatted(f *formatted) {
	defer r.abort()
	compiled, err := r.c.server.compile(f.ctx, r.form, r.user)
	f.held.release()
	var e *protocol.Error
	switch {
	case err == nil:
		if e = r.submit(compiled, f.received); e != nil {
			compiled.Close()
		}
	case f.ctx.Err() == nil:
		e = asError(err)
	case r.c.server.closing.Err() != nil:
		e = asError(context.Cause(f.ctx))
	default:
		total := float64(time.Since(f.received)) / float64(time.Millisecond)
		r.Finish(engine.Finish{Reason: protocol.FinishCancelled, Timing: protocol.Timing{TotalMS: total}})
	}
	if e != nil {
		r.refuse(e)
		return
	}
	if f.ctx.Err() != nil { // a cancel that found no handle
		r.cancel()
	}
	r.collect(f.message)
	r.stream()
}

// refuse ends a request that was not submitted.
func (r *request) refuse(e *protocol.Error) {
	r.c.forget(r.id)
	r.c.countRefused(r.id, e)
	r.c.send(e.For(r.id))
	r.c.server.endRequest()
}

// compile compiles a format when it is the user's turn.
func (s *Server) compile(ctx context.Context, f form, user engine.User) (engine.Format, error) {
	if err := s.compiles.acquireUntil(ctx, user); err != nil {
		return nil, err
	}
	defer s.compiles.release(user)
	return f(ctx, user)
}
