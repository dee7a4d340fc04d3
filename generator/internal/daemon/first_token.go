package daemon

import (
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/server"
)

// firstToken requests one greedy token from the engine, as the last check of a start. It
// returns the engine's error, or nil if ended is closed first.
func firstToken(e server.Engine, ended <-chan struct{}) error {
	sampled := make(firstSink, 1)
	request := &engine.Request{Tokens: []int32{0}, MaxTokens: 1, IgnoreEOS: true,
		Sampling: engine.Sampling{TopP: 1, RepeatPenalty: 1}, Sink: sampled}
	if _, err := e.Submit(request); err != nil {
		return err
	}
	select {
	case f := <-sampled:
		return f.Err
	case <-ended:
		return nil
	}
}

// firstSink receives the end of the first request. It has one slot and is never full.
type firstSink chan engine.Finish

// Token ignores the token.
func (firstSink) Token(engine.Token) {}

// Finish passes the end of the request on.
func (s firstSink) Finish(f engine.Finish) { s <- f }
