//go:build linux

package main

import (
	"sync"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// fakeEngine ends a request at once or, with hold, in finish. It ends the start's own request
// at once in any case.
type fakeEngine struct {
	hold bool
	fail chan error
	// resized receives the arguments of Resize.
	resized chan [2]int64

	mu      sync.Mutex
	stopped chan struct{}
	held    []engine.Sink
}

func newFake() *fakeEngine {
	return &fakeEngine{fail: make(chan error, 1), stopped: make(chan struct{}), resized: make(chan [2]int64, 10)}
}

func (e *fakeEngine) Submit(r *engine.Request) (engine.Handle, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.Sink.Token(engine.Token{ID: 'x'})
	if e.hold && len(r.Tokens) > 1 { // the start's own request has one token
		e.held = append(e.held, r.Sink)
	} else {
		r.Sink.Finish(engine.Finish{Reason: protocol.FinishLength})
	}
	return 1, nil
}

func (e *fakeEngine) finish(f engine.Finish) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, sink := range e.held {
		sink.Finish(f)
	}
	e.held = nil
}

func (e *fakeEngine) Cancel(engine.Handle)        { e.finish(engine.Finish{Reason: protocol.FinishCancelled}) }
func (e *fakeEngine) Expect()                     {}
func (e *fakeEngine) EndExpect()                  {}
func (e *fakeEngine) Reread(engine.User, []int32) {}
func (e *fakeEngine) Stats() engine.Stats         { return engine.Stats{} }
func (e *fakeEngine) Cached(engine.User, bool) (protocol.Cached, error) {
	return protocol.Cached{}, nil
}
func (e *fakeEngine) Stop()                 { close(e.stopped) }
func (e *fakeEngine) Heartbeat(done func()) { done() }
func (e *fakeEngine) Resize(n int, b int64) error {
	e.resized <- [2]int64{int64(n), b}
	return nil
}

func (e *fakeEngine) Run() error {
	select {
	case <-e.stopped:
		e.finish(engine.Finish{Err: engine.ErrShutdown})
		return nil
	case err := <-e.fail:
		e.finish(engine.Finish{Err: err})
		return err
	}
}

type fakeTokenizer struct{}

func (fakeTokenizer) EncodeMarked(text marked.Text, _ bool) ([]int32, error) {
	return make([]int32, text.Len()), nil
}
func (fakeTokenizer) TokenText(int32) string { return "x" }
func (fakeTokenizer) MaxTokenBytes() int     { return 1 }
func (fakeTokenizer) Push(int32) string      { return "x" }
func (fakeTokenizer) Held() int              { return 0 }
func (fakeTokenizer) Flush() string          { return "" }
