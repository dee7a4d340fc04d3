package server

import (
	"time"

	"reel/protocol"
)

// Observer is told what becomes of requests, for metrics. Its methods are called
// on the goroutines of connections and requests, by many at once, and must not block.
type Observer interface {
	Connected() // a connection was taken
	// Error tells that a client is told an error of this code.
	Error(code string)
	// Tokens tells that n tokens of a request came, together, so long after the
	// token before them.
	Tokens(n int, after time.Duration)
	// Request tells how a request ended: by a finish reason or an error's code.
	Request(finish string, usage protocol.Usage, timing protocol.Timing)
}

// nobody observes nothing.
type nobody struct{}

func (nobody) Connected()                                      {}
func (nobody) Error(string)                                    {}
func (nobody) Tokens(int, time.Duration)                       {}
func (nobody) Request(string, protocol.Usage, protocol.Timing) {}
