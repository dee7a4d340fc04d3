// Package engine runs the model: it owns the device, forms steps with the
// scheduler, launches them and hands each sampled token to its request's Sink.
package engine

import (
	"errors"
	"time"

	"reel/protocol"
)

// Errors with which Submit refuses a request. Nothing was taken for it.
var (
	ErrBusy     = errors.New("engine: the queue is full")
	ErrDraining = errors.New("engine: draining")
	ErrTooLong  = errors.New("engine: prompt does not fit the context")
)

// ErrShutdown is the Finish.Err of a request that a stop cut short.
var ErrShutdown = errors.New("engine: stopped before the request finished")

// Sampling says how a token is drawn. The zero value is greedy.
type Sampling struct {
	Temperature   float32 // 0 is greedy
	TopK          int     // 0 is off
	TopP          float32 // 1 is off
	MinP          float32 // 0 is off
	RepeatPenalty float32 // 1 is off
	Seed          uint64
	Logprobs      int // alternatives to report, 0 to 20; the token's own logprob always comes
}

// Request is one completion to make.
type Request struct {
	Tokens    []int32 // the prompt, 1 to context-1 ids
	MaxTokens int     // at least 1
	IgnoreEOS bool
	Sampling  Sampling
	// User is who asks, Connection where: users have equal shares, and so have a
	// user's connections.
	User       uint32
	Connection uint64
	// Received is when the request reached the generator; timings count from it.
	Received time.Time
	// Sink takes what comes of the request.
	Sink Sink
}

// Sink receives a request's tokens in order, then exactly one Finish. Its
// methods are called on the engine's thread and must not block.
type Sink interface {
	Token(Token)
	Finish(Finish)
}

// Token is one sampled token. An end-of-sequence token that ends the request
// is not delivered.
type Token struct {
	Index   int // from 0
	ID      int32
	Logprob float32    // natural logarithm, of the model's own distribution
	Top     []TopToken // Sampling.Logprobs of them, most probable first
}

// TopToken is one of the most probable tokens at a place.
type TopToken struct {
	ID      int32
	Logprob float32
}

// Finish ends a request.
type Finish struct {
	Reason string // protocol.Finish…, empty where Err is set
	Err    error
	Usage  protocol.Usage
	Timing protocol.Timing
	Graphs protocol.Graphs
}

// Handle names a submitted request.
type Handle uint64

// Stats is a snapshot of the engine for status. Of Requests it fills in what
// runs and what waits: how requests end is for the server to count.
type Stats struct {
	Requests protocol.Requests
	KV       protocol.KV
	Steps    protocol.Steps
	Graphs   protocol.GraphPool
	Reserve  protocol.Reserve
	Arena    int64 // bytes of device memory that steps work in, beside the KV pool
}
