package daemon

import (
	"errors"
	"time"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/server"
)

// firstToken requests one greedy token, or an embedding of a model for embeddings, as the last check of a start. It
// returns the engine's error, or nil if ended is closed first.
func firstToken(m server.Model, ended <-chan struct{}) error {
	sampled := make(firstSink, 1)
	request := &engine.Request{Tokens: []int32{0}, MaxTokens: 1, IgnoreEOS: true,
		Sampling: engine.Sampling{TopP: 1, RepeatPenalty: 1}, Cache: engine.CacheOff, Sink: sampled}
	if m.Embedding != nil {
		request.Vector = make([]float32, m.Embedding.Dimensions)
	}
	if _, err := m.Engine.Submit(request); err != nil {
		return err
	}
	select {
	case f := <-sampled:
		return f.Err
	case <-ended:
		return nil
	}
}

// explain returns the cause of err, which ended the first request: a NaN or an infinity in the
// weights, if err may come from one, otherwise err itself.
func (a *EngineActor) explain(l *assembly.Loaded, err error) error {
	if !errors.Is(err, engine.ErrNumeric) || l.NotFinite == nil {
		return err
	}
	const searching = "the first token is not a number: searching the weights for a NaN or an infinity"
	a.Log.Warn().Msg(searching)
	a.Manager.loading(time.Now)(0, searching)
	if found := l.NotFinite(a.ctx); found != nil {
		return found
	}
	return err
}

// firstSink receives the end of the first request. It has one slot and is never full.
type firstSink chan engine.Finish

// Token ignores the token.
func (firstSink) Token(engine.Token) {}

// Finish passes the end of the request on.
func (s firstSink) Finish(f engine.Finish) { s <- f }
