package engine

import (
	"errors"
	"time"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels"
	"reel.internal/reel/protocol"
)

// Errors of Submit. The request was not taken.
var (
	ErrBusy     = errors.New("engine: the queue is full")
	ErrDraining = errors.New("engine: draining")
	ErrTooLong  = errors.New("engine: prompt does not fit the context")
	// ErrTooManyBiases refuses a request with more biases than a sequence may have. The model's suppressed tokens count.
	ErrTooManyBiases = errors.New("engine: too many biases")
	// ErrOtherModel refuses a request for tokens from a model for embeddings, and the reverse.
	ErrOtherModel = errors.New("engine: the model does not answer such a request")
)

// ErrShutdown is the Finish.Err of a request that Stop cut short.
var ErrShutdown = errors.New("engine: stopped before the request finished")

// Sampling configures how tokens are sampled. The zero value is greedy.
type Sampling struct {
	Temperature   float32 // 0 is greedy
	TopK          int     // 0 is off
	TopP          float32 // 1 is off
	MinP          float32 // 0 is off
	RepeatPenalty float32 // 1 is off
	Seed          uint64
	Logprobs      int // alternatives to report, 0 to 20; the token's own logprob always comes

	PresencePenalty  float32 // 0 is off
	FrequencyPenalty float32 // 0 is off
	Biases           []Bias  // no token twice; with the model's suppressed tokens at most kernels.MaxBiases
}

// Bias is added to the logit of a token.
type Bias = kernels.Bias

// Request asks for one completion, or for one embedding.
type Request struct {
	Tokens    []int32 // the prompt, 1 to context-1 ids, or up to context for an embedding
	MaxTokens int     // at least 1
	// Vector asks for the embedding of Tokens, as wide as the model. It is written before a Finish without an error,
	// and until then the engine's alone. The Sink gets no token, and the fields that say how to draw one mean nothing.
	Vector    []float32
	IgnoreEOS bool
	Sampling  Sampling
	// Format constrains the tokens; nil: any may be drawn. A request that Submit took closes it when it has ended.
	Format Format
	// Cache says whether the prompt's pages are shared with other prompts of its scope.
	Cache CacheMode
	// DraftTokens is how many tokens may be guessed ahead at once, of the engine's own DraftTokens at most; 0: none.
	DraftTokens int
	// Prediction is what DraftGiven guesses; 0 stands for each token past it.
	Prediction []int32
	// User and Connection identify the sender. Uids get equal shares, and so do the names of a uid and the connections
	// of a name.
	User       User
	Connection uint64
	// Received is when the request reached the generator; timings count from it.
	Received time.Time
	// Sink receives the tokens and the Finish.
	Sink Sink
}

// User is a uid, and a name by which its process divides it.
type User = scheduler.User

// CacheMode is what a request does with the prefix cache.
type CacheMode uint8

// The modes of a request.
const (
	CacheOn   CacheMode = iota // finds pages, and leaves its own
	CacheRead                  // finds pages only
	CacheOff                   // neither
)

// CacheScope says whose prompts share pages.
type CacheScope uint8

// The scopes of an engine. With ScopeUser no user learns from the time of an answer what another one asked.
const (
	ScopeUser CacheScope = iota
	ScopeAll
	ScopeOff
)

// String returns the scope's name in the protocol.
func (s CacheScope) String() string {
	return [...]string{ScopeUser: protocol.ScopeUser, ScopeAll: protocol.ScopeAll, ScopeOff: protocol.ScopeOff}[s]
}

// Sink receives a request's tokens in order, then exactly one Finish. Its methods are called on the engine's
// thread and must not block.
type Sink interface {
	Token(Token)
	Finish(Finish)
}

// Token is one sampled token. An end-of-sequence token that ends the request is not delivered.
type Token struct {
	Index   int // from 0
	ID      int32
	Logprob float32    // natural logarithm, before penalty, temperature and filters
	Top     []TopToken // Sampling.Logprobs of them, most probable first
	Drafted bool       // it had been guessed
}

// TopToken is one of the most probable tokens at a position.
type TopToken struct {
	ID      int32
	Logprob float32
}

// Finish ends a request.
type Finish struct {
	Reason string // one of protocol.Finish…; empty if Err is set
	Err    error
	Usage  protocol.Usage
	Timing protocol.Timing
	Graphs protocol.Graphs
}

// Handle names a submitted request.
type Handle uint64
