package daemon

import (
	"reel/generator/internal/engine"
	"reel/generator/internal/server"
)

// firstToken has the engine draw one token, greedily, as the last check of a
// start. Its error is what kept the engine from it; nil too where ended came first.
func firstToken(e server.Engine, ended <-chan struct{}) error {
	drawn := make(firstSink, 1)
	if _, err := e.Submit(&engine.Request{Tokens: []int32{0}, MaxTokens: 1, IgnoreEOS: true, Sampling: engine.Sampling{TopP: 1, RepeatPenalty: 1}, Sink: drawn}); err != nil {
		return err
	}
	select {
	case f := <-drawn:
		return f.Err
	case <-ended:
		return nil
	}
}

// firstSink takes the end of the first request. Its one place is never full.
type firstSink chan engine.Finish

// Token is the token that was asked for; that there is one is enough.
func (firstSink) Token(engine.Token) {}

// Finish is the end.
func (s firstSink) Finish(f engine.Finish) { s <- f }
