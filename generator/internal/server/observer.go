package server

import (
	"time"

	"reel.internal/reel/protocol"
)

// Observer counts connections, tokens, requests and errors, for metrics. Its methods are
// called concurrently by the goroutines of connections and requests, and must not block.
type Observer interface {
	Connected() // a connection was accepted
	// Error is called for each error sent to a client.
	Error(code string)
	// Tokens is called when n tokens of a request have arrived together, a time after the
	// request's token before them.
	Tokens(n int, after time.Duration)
	// Request is called at the end of a request, with its finish reason or error code.
	Request(finish string, usage protocol.Usage, timing protocol.Timing)
}

// noObserver does nothing.
type noObserver struct{}

func (noObserver) Connected()                                      {}
func (noObserver) Error(string)                                    {}
func (noObserver) Tokens(int, time.Duration)                       {}
func (noObserver) Request(string, protocol.Usage, protocol.Timing) {}
