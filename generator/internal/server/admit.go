package server

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// generate starts a request or refuses it. Every refusal but that of a format happens here, before
// the engine reserves anything.
func (c *conn) generate(m *protocol.Generate, received time.Time) *protocol.Error {
	model, e := c.server.beginRequest()
	if e != nil {
		c.countRefused(m.ID, e)
		return e.For(m.ID)
	}
	r, e := c.admit(model, m, received)
	if e != nil {
		c.server.endRequest()
		c.countRefused(m.ID, e)
		return e.For(m.ID)
	}
	if r == nil {
		return nil
	}
	run := r.stream
	if r.form != nil {
		f := r.follow(m, received)
		run = func() { r.streamFormatted(f) }
	}
	c.mu.Lock()
	c.requests[r.id] = r
	c.mu.Unlock()
	c.streams.Go(run)
	return nil
}

// admit checks a request and makes its prompt. It submits the request, unless its format has to be compiled first. It
// returns nil and nil for a request that is over, as it wants its prompt's tokens counted alone.
func (c *conn) admit(model *Model, m *protocol.Generate, received time.Time) (*request, *protocol.Error) {
	if model.Embedding != nil {
		return nil, protocol.Errorf(protocol.CodeNoGeneration,
			"send embed, as reel embed does, or serve a model that draws tokens",
			"%s is meant for embeddings and draws no tokens", model.Name)
	}
	if e := c.checkRequests(m.ID); e != nil {
		return nil, e
	}
	if e := m.Validate(model.Limits); e != nil {
		return nil, e
	}
	if model.Formats == nil && (m.Format != nil || mustCall(m)) {
		return nil, noFormats()
	}
	tokens, place, e := c.server.promptTokens(model, m, c.user(m.User))
	if e != nil {
		return nil, e
	}
	if m.Count {
		c.counted(m.ID, len(tokens), received)
		return nil, nil
	}
	r := newRequest(c, model, m, tokens)
	r.text.read = newReading(model, m, tokens, place)
	if r.form, e = model.form(m, place); r.form != nil || e != nil {
		return r, e
	}
	if e := r.submit(nil, received); e != nil {
		return nil, e
	}
	r.collect(m)
	return r, nil
}

// counted ends a request that wants the number of its prompt's tokens.
func (c *conn) counted(id uint64, tokens int, received time.Time) {
	c.server.counts.ended(protocol.FinishLength, false)
	c.send(&protocol.Done{ID: id, FinishReason: protocol.FinishLength, Usage: protocol.Usage{PromptTokens: tokens},
		Timing: protocol.Timing{TotalMS: float64(time.Since(received).Microseconds()) / 1000}})
	c.server.endRequest()
}

// user returns the user of a request with this field user; nil: it has none.
func (c *conn) user(name *string) engine.User {
	if name == nil {
		return engine.User{UID: c.peer.uid}
	}
	return engine.User{UID: c.peer.uid, Name: *name}
}

// checkRequests checks that the connection may run one more request, and that id is free.
func (c *conn) checkRequests(id uint64) *protocol.Error {
	most := c.server.maxRequests()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[id] != nil {
		return protocol.Errorf(protocol.CodeDuplicateID, "give each running request its own id",
			"request %d is still running on this connection", id)
	}
	if len(c.requests) >= most {
		return protocol.Errorf(protocol.CodeTooManyRequests, "wait for one to end",
			"%d requests run on this connection", len(c.requests))
	}
	return nil
}

// promptTokens returns the prompt's tokens of a validated request, 1 to context-1 of them, and where the prompt ends.
func (s *Server) promptTokens(model *Model, m *protocol.Generate, user engine.User) (tokens []int32, place calls.Place,
	e *protocol.Error) {
	if m.Tokens != nil {
		return m.Tokens, place, nil // validated
	}
	text, e := s.promptText(model, m, user)
	if e != nil {
		return nil, place, e
	}
	if model.Chat != nil {
		text = begun(text, m, model.Chat.Answers().Form)
		place = placeOf(text, model.Chat.Answers().Form)
	}
	if tokens, e = s.encode(model, text, m.Prompt != nil, user); e != nil {
		return nil, place, e
	}
	if len(tokens) == 0 {
		return nil, place, protocol.Errorf(protocol.CodeBadRequest, "give a prompt with some text",
			"the prompt has no tokens")
	}
	if e := checkRows(tokens, model.Limits.Vocab); e != nil {
		return nil, place, e
	}
	return tokens, place, protocol.CheckPromptTokens(len(tokens), model.Limits)
}

// checkRows refuses a token without a row in the embedding: a tokenizer may have more tokens than
// the model has rows.
func checkRows(tokens []int32, vocab int) *protocol.Error {
	for i, t := range tokens {
		if int(t) >= vocab {
			return protocol.Errorf(protocol.CodeBadRequest, "leave that token's text out of the prompt",
				"token %d of the prompt is %d, an added token without weights: this model has weights for 0 to %d",
				i, t, vocab-1)
		}
	}
	return nil
}

// promptText returns the text of a request's prompt or conversation.
func (s *Server) promptText(model *Model, m *protocol.Generate, user engine.User) (marked.Text, *protocol.Error) {
	if m.Prompt != nil {
		return markedPrompt(*m.Prompt, m.Special), nil
	}
	if model.Chat == nil {
		return nil, model.noChat()
	}
	if e := model.checkTools(m); e != nil {
		return nil, e
	}
	s.renders.acquire(user)
	text, err := model.Chat.Render(Conversation{m.Messages, shownTools(m), m.Template}, model.Limits.PromptBytes)
	s.renders.release(user)
	if err != nil {
		return nil, asError(err)
	}
	return text, nil
}

// checkTools refuses tools that the chat template does not show.
func (m *Model) checkTools(g *protocol.Generate) *protocol.Error {
	if shownTools(g) != "" && !m.Chat.Answers().Form.Tools {
		return protocol.Errorf(protocol.CodeBadRequest, "leave tools out, or serve a model that was trained to call them",
			"the chat template of %s shows no tools", m.Name)
	}
	return nil
}

// params returns the request's parameters with the model's defaults.
func (m *Model) params(g *protocol.Generate) protocol.Params {
	if g.Messages != nil && m.ChatDefaults != nil {
		return g.ParamsWith(*m.ChatDefaults)
	}
	return g.Params()
}

// noChat returns the error for a conversation with a model that has no chat template, or one
// that does not compile.
func (m *Model) noChat() *protocol.Error {
	if m.ChatFailure != "" {
		return protocol.Errorf(protocol.CodeNoChatTemplate,
			"send a prompt, as reel --raw does; the checkpoint's authors can correct the template",
			"%s has a chat template that cannot be used: %s", m.Name, m.ChatFailure)
	}
	return protocol.Errorf(protocol.CodeNoChatTemplate,
		"send a prompt, as reel --raw does, or serve a model that was trained to chat; if this one was, give its "+
			"template to the generator with --chat-template FILE",
		"%s is a base model: it has no chat template for messages", m.Name)
}

// sampling converts a request's parameters. A missing seed is drawn at random.
func sampling(p protocol.Params) engine.Sampling {
	s := engine.Sampling{
		Temperature: float32(p.Temperature), TopK: p.TopK, TopP: float32(p.TopP), MinP: float32(p.MinP),
		RepeatPenalty: float32(p.RepeatPenalty), Seed: p.Seed, Logprobs: p.Logprobs,
		PresencePenalty: float32(p.PresencePenalty), FrequencyPenalty: float32(p.FrequencyPenalty),
	}
	for _, b := range p.LogitBias {
		s.Biases = append(s.Biases, engine.Bias{Token: b.Token, Value: float32(b.Bias)})
	}
	if !p.HasSeed {
		s.Seed = randomSeed()
	}
	return s
}

// cacheModes are the engine's modes by the protocol's names.
var cacheModes = map[string]engine.CacheMode{
	protocol.CacheOn: engine.CacheOn, protocol.CacheRead: engine.CacheRead, protocol.CacheOff: engine.CacheOff,
}

func randomSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return binary.NativeEndian.Uint64(b[:])
}
