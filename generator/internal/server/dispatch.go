package server

import (
	"bytes"
	"time"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/protocol"
)

// handleFrame decodes and handles one frame. It sends and returns the error, if any.
func (c *conn) handleFrame(body []byte) *protocol.Error {
	received := time.Now()
	if c.model != nil && mayGenerate(body) {
		c.expect() // wakes an idle engine while this goroutine decodes
	}
	msg, err := c.limits().DecodeRequest(body)
	if isWork(msg) {
		c.server.activity.begin()
		defer c.server.activity.end()
	}
	if _, greets := msg.(*protocol.Hello); !greets {
		c.asked.Store(true)
	}
	c.dispatching = true
	c.reservation.markDecoded()
	c.frames.Release() // frees the frame's memory; its bytes stay reserved for the message
	defer func() {
		c.dispatching = false
		c.reservation.release()
	}()
	var e *protocol.Error
	if err == nil {
		e = c.dispatch(msg, received)
	} else {
		e = asError(err)
		c.countUndecodable(e)
	}
	if e != nil {
		c.send(e)
	}
	return e
}

// mayGenerate guesses whether an undecoded body asks for a completion or an embedding. Most clients encode the
// message's type first.
func mayGenerate(body []byte) bool {
	begin := body[:min(len(body), 24)]
	return bytes.Contains(begin, []byte(protocol.TypeGenerate)) || bytes.Contains(begin, []byte(protocol.TypeEmbed))
}

// countUndecodable counts a request that was refused while it was decoded.
func (c *conn) countUndecodable(e *protocol.Error) {
	if e.ID != nil && (e.Code == protocol.CodeBadRequest || e.Code == protocol.CodePromptTooLong) {
		c.countRefused(*e.ID, e)
	}
}

// countRefused counts and logs a request that was refused.
func (c *conn) countRefused(id uint64, e *protocol.Error) {
	c.server.counts.refused.Add(1)
	c.log.WithLevel(c.server.opts.requestLevel()).Uint64("req_id", id).Str("finish", e.Code).Msg("refused")
}

func (c *conn) dispatch(msg any, received time.Time) *protocol.Error {
	if m, ok := msg.(*protocol.Hello); ok {
		return c.hello(m)
	}
	if _, ok := msg.(*protocol.StatusRequest); ok {
		c.send(c.server.Status())
		return nil
	}
	if c.model == nil {
		return helloRequired(msg)
	}
	switch m := msg.(type) {
	case *protocol.Generate:
		return c.generate(m, received)
	case *protocol.Embed:
		return c.embed(m, received)
	case *protocol.Cancel:
		c.cancel(m.ID)
	case *protocol.Tokenize:
		return c.tokenize(m)
	case *protocol.CacheRequest:
		return c.cache(m)
	case *protocol.SleepRequest:
		return c.sleep(m)
	}
	return nil
}

func helloRequired(msg any) *protocol.Error {
	e := protocol.Errorf(protocol.CodeHelloRequired, "send hello, and wait for welcome",
		"hello has not been answered by welcome")
	switch m := msg.(type) {
	case *protocol.Generate:
		return e.For(m.ID)
	case *protocol.Embed:
		return e.For(m.ID)
	case *protocol.Cancel:
		return e.For(m.ID)
	}
	return e
}

func (c *conn) hello(m *protocol.Hello) *protocol.Error {
	if m.Version != protocol.Version {
		return protocol.Errorf(protocol.CodeUnsupportedVersion, "use a client of the generator's release",
			"the client speaks protocol version %d, this generator %d", m.Version, protocol.Version)
	}
	model, e := c.server.serving()
	if e != nil {
		return e
	}
	c.model = model
	c.send(model.welcome())
	return nil
}

// welcome says what m can do.
func (m *Model) welcome() *protocol.Welcome {
	w := &protocol.Welcome{Version: protocol.Version, Model: m.Name, Limits: m.Limits, Identity: m.identity()}
	if m.Embedding != nil {
		w.Embeddings = &m.Embedding.Embeddings
	}
	if d := m.Engine.Stats().Drafts.Drafter; d != protocol.DrafterOff {
		w.Drafter = d
	}
	if m.Chat != nil {
		form := m.Chat.Answers().Form
		w.Chat, w.Tools, w.Reasoning = true, form.Tools && form.Family != calls.None, form.Reasons()
	}
	return w
}

func (c *conn) cancel(id uint64) {
	c.mu.Lock()
	r := c.requests[id]
	c.mu.Unlock()
	if r != nil {
		r.cancel()
	}
}

// limits returns the limits that welcome stated, or none before welcome.
func (c *conn) limits() protocol.Limits {
	if c.model == nil {
		return protocol.Limits{}
	}
	return c.model.Limits
}
