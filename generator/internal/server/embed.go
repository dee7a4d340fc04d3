package server

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// Embedding says what vectors a model for embeddings makes.
type Embedding struct {
	protocol.Embeddings
	// Texts are the model's own prompts by their names, and Default is the name of the one that a text gets otherwise;
	// "": none.
	Texts   map[string]string
	Default string
}

// embedding is one embed request: the engine leaves the vector, and its goroutine sends it.
type embedding struct {
	c          *conn
	id         uint64
	user       engine.User
	model      *Model
	tokens     []int32
	vector     []float32
	normalize  bool
	dimensions int
	handle     atomic.Uint64
	ended      chan engine.Finish // capacity 1
}

// embed starts a request for an embedding or refuses it.
func (c *conn) embed(m *protocol.Embed, received time.Time) *protocol.Error {
	model, e := c.server.beginRequest()
	if e != nil {
		c.countRefused(m.ID, e)
		return e.For(m.ID)
	}
	r, e := c.admitEmbedding(model, m, received)
	if e != nil {
		c.server.endRequest()
		c.countRefused(m.ID, e)
		return e.For(m.ID)
	}
	c.mu.Lock()
	c.requests[r.id] = r
	c.mu.Unlock()
	c.streams.Go(r.send)
	return nil
}

// admitEmbedding checks a request, makes its tokens, and submits it to the engine.
func (c *conn) admitEmbedding(model *Model, m *protocol.Embed, received time.Time) (*embedding, *protocol.Error) {
	own := model.Embedding
	if own == nil {
		return nil, protocol.Errorf(protocol.CodeNoEmbeddings,
			"serve a model that is, such as Qwen3-Embedding", "%s is not meant for embeddings", model.Name)
	}
	if e := c.checkRequests(m.ID); e != nil {
		return nil, e
	}
	if e := m.Validate(model.Limits, own.Embeddings); e != nil {
		return nil, e
	}
	r := &embedding{c: c, id: m.ID, user: c.user(m.User), model: model, normalize: own.Normalized,
		dimensions: own.Dimensions, vector: make([]float32, own.Dimensions), ended: make(chan engine.Finish, 1)}
	if m.Normalize != nil {
		r.normalize = *m.Normalize
	}
	if m.Dimensions != nil {
		r.dimensions = *m.Dimensions
	}
	var e *protocol.Error
	if r.tokens, e = c.server.textTokens(model, m, r.user); e != nil {
		return nil, e
	}
	return r, r.submit(m, received)
}

// textTokens returns the tokens of a validated request's text, 1 to context of them.
func (s *Server) textTokens(model *Model, m *protocol.Embed, user engine.User) ([]int32, *protocol.Error) {
	if m.Tokens != nil {
		return m.Tokens[:min(len(m.Tokens), model.Limits.Context)], nil
	}
	before, e := model.Embedding.before(m.PromptName)
	if e != nil {
		return nil, e
	}
	text := slices.Concat(marked.Trusted(before), markedPrompt(*m.Prompt, m.Special))
	tokens, e := s.encode(model, text, true, user)
	if e != nil {
		return nil, e
	}
	if most := model.Limits.Context; m.Truncate && len(tokens) > most {
		if tokens, e = s.cut(model, text, tokens, most, user); e != nil {
			return nil, e
		}
	}
	if len(tokens) == 0 {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "give a text", "the text has no tokens")
	}
	if e := checkRows(tokens, model.Limits.Vocab); e != nil {
		return nil, e
	}
	return tokens, protocol.CheckTextTokens(len(tokens), model.Limits)
}

// before returns the text of the model's prompt of a name; nil is the name of its default.
func (m *Embedding) before(name *string) (string, *protocol.Error) {
	wanted := m.Default
	if name != nil {
		wanted = *name
	}
	text, ok := m.Texts[wanted]
	if !ok && wanted != "" {
		return "", protocol.Errorf(protocol.CodeBadRequest, "leave it out, or give one that welcome lists",
			"prompt_name is %.64q: the model has the prompts %q", wanted, m.Prompts)
	}
	return text, nil
}

// cut shortens a text's tokens to most of them, from its end, and keeps those that the tokenizer puts around the text.
func (s *Server) cut(model *Model, text marked.Text, whole []int32, most int, user engine.User) ([]int32,
	*protocol.Error) {
	bare, e := s.encode(model, text, false, user)
	if e != nil {
		return nil, e
	}
	around := len(whole) - len(bare)
	for before := 0; before <= around; before++ {
		if end := before + len(bare); slices.Equal(whole[before:end], bare) {
			return slices.Concat(whole[:max(before, most-(around-before))], whole[end:])[:most], nil
		}
	}
	return whole[:most], nil
}

// submit passes the request to the engine. After that send must run.
func (r *embedding) submit(m *protocol.Embed, received time.Time) *protocol.Error {
	cache := protocol.CacheOn
	if m.Cache != nil {
		cache = *m.Cache
	}
	handle, err := r.model.Engine.Submit(&engine.Request{Tokens: r.tokens, MaxTokens: 1, Vector: r.vector,
		Cache: cacheModes[cache], User: r.user, Connection: r.c.number, Received: received, Sink: r})
	if err != nil {
		return asError(err)
	}
	r.handle.Store(uint64(handle))
	return nil
}

// Token implements [engine.Sink]; there are none.
func (r *embedding) Token(engine.Token) {}

// Finish implements [engine.Sink].
func (r *embedding) Finish(f engine.Finish) { r.ended <- f }

// cancel ends the request early.
func (r *embedding) cancel() { r.model.Engine.Cancel(engine.Handle(r.handle.Load())) }

// send waits for the end of the request and sends its last message. The id is free and the end is counted before the
// client can read that.
func (r *embedding) send() {
	f := <-r.ended
	end, reason := r.end(&f)
	r.c.server.opts.Observer.Request(reason, f.Usage, f.Timing)
	r.c.forget(r.id)
	r.c.server.counts.ended(reason, f.Err != nil)
	r.c.send(end)
	r.c.server.endRequest()
	level := r.c.server.opts.requestLevel()
	if f.Err != nil {
		level = zerolog.InfoLevel
	}
	r.c.log.WithLevel(level).Uint64("req_id", r.id).Str("model", r.model.Name).Int("n_prompt", len(r.tokens)).
		Int("n_cached", f.Usage.CachedTokens).Float64("total_ms", f.Timing.TotalMS).Str("finish", reason).
		AnErr("error", f.Err).Msg("embedding")
}

// end returns the request's last message: embedding, done if it was cancelled, or error. It also returns the finish
// reason or the error's code.
func (r *embedding) end(f *engine.Finish) (msg any, reason string) {
	switch {
	case f.Err != nil:
		e := asError(r.model.Cause(f.Err)).For(r.id)
		return e, e.Code
	case f.Reason == protocol.FinishCancelled:
		return &protocol.Done{ID: r.id, FinishReason: f.Reason, Usage: f.Usage, Timing: f.Timing,
			Graphs: f.Graphs}, f.Reason
	}
	v := r.vector[:r.dimensions]
	if r.normalize {
		normalize(v)
	}
	return &protocol.Embedding{ID: r.id, Vector: v, Usage: f.Usage, Timing: f.Timing, Graphs: f.Graphs}, f.Reason
}

// normalize divides v by its length, unless that is 0.
func normalize(v []float32) {
	var sum float64
	for _, f := range v {
		sum += float64(f) * float64(f)
	}
	if sum == 0 {
		return
	}
	for i, f := range v {
		v[i] = float32(float64(f) / math.Sqrt(sum))
	}
}
