package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"reel.internal/reel/generator/internal/kv/store"
	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels"
	"reel.internal/reel/protocol"
)

// Errors of requests that end early. Finish.Err wraps them.
var (
	ErrDevice  = errors.New("engine: the device failed")
	ErrNumeric = errors.New("engine: the model produced a value that is not a number")
	// errWrongRecord comes with ErrDevice. Without it a sequence would wait forever for its token.
	errWrongRecord = errors.New("engine: a completed step's record is another step's")
)

// The protocol's limits of sampling equal those of the ops, or this does not compile.
var (
	_ = [1]struct{}{}[kernels.PenaltyWindow-protocol.PenaltyWindow]
	_ = [1]struct{}{}[kernels.MaxTop-protocol.MaxLogprobs]
	_ = [1]struct{}{}[kernels.MaxBiases-protocol.MaxBiases]
)

// sequence is a request's life in the engine, from Submit to its Finish.
type sequence struct {
	handle    Handle
	request   *Request
	scheduled scheduler.Sequence // Owner points back here

	admitted, first time.Time  // when it got its slot, and its first token; zero before
	tokens          int        // delivered
	stored          []store.ID // the files of the pages that the prompt begins with
	read            int        // index in stored after the pages that were read, or tried
	graphs          protocol.Graphs
	masking         masking
	drafting        drafting
}

func (e *Engine) newSequence(r *Request) *sequence {
	p := r.Sampling
	s := &sequence{request: r}
	s.scheduled = scheduler.Sequence{Prompt: r.Tokens, MaxTokens: r.MaxTokens, User: r.User,
		Connection: r.Connection, Owner: s, Scope: e.scope(r), ReadOnly: r.Cache == CacheRead}
	if r.Vector != nil {
		s.scheduled.MaxTokens = 1 // the step that ends the prompt leaves the vector
	}
	s.scheduled.Sampling = kernels.Sampling{
		Temperature: p.Temperature, TopK: int32(p.TopK), TopP: p.TopP, MinP: p.MinP,
		RepeatPenalty: p.RepeatPenalty, Logprobs: int32(p.Logprobs), Seed: p.Seed,
		PresencePenalty: p.PresencePenalty, FrequencyPenalty: p.FrequencyPenalty, Biases: e.biases(p.Biases),
		Masked: r.Format != nil}
	s.stored = e.storedPages(s)
	switch {
	case e.drafts.policy == nil:
	case r.Format != nil:
		s.drafting.plan.BeginForced(e.drafts.policy, r.DraftTokens)
	default:
		s.drafting.plan.Begin(e.drafts.policy, r.Tokens, r.DraftTokens)
	}
	return s
}

// biases returns a request's biases, with −∞ for each token that the model suppresses.
func (e *Engine) biases(own []Bias) []Bias {
	suppressed := e.model.Config.Suppressed
	if len(suppressed) == 0 {
		return own
	}
	all := make([]Bias, 0, len(own)+len(suppressed))
	for _, b := range own {
		if !slices.Contains(suppressed, b.Token) {
			all = append(all, b)
		}
	}
	for _, id := range suppressed {
		all = append(all, Bias{Token: id, Value: float32(math.Inf(-1))})
	}
	return all
}

// scope returns the scope of a request's prompt; "" for none.
func (e *Engine) scope(r *Request) string {
	switch {
	case r.Cache == CacheOff || e.opts.CacheScope == ScopeOff:
		return ""
	case e.opts.CacheScope == ScopeAll:
		return scopeAll
	}
	return userScope(r.User)
}

// scopeAll is the scope of everybody's prompts.
const scopeAll = "all"

// userScope returns the scope of a user's own prompts. Files on disk have it too.
func userScope(u User) string {
	scope := "user " + strconv.FormatUint(uint64(u.UID), 10)
	if u.Name != "" {
		scope += " " + u.Name
	}
	return scope
}

// vector gives s the embedding that step left as its i-th result, and ends it.
func (e *Engine) vector(s *sequence, step uint64, i int, now time.Time) {
	if isNaN(&e.result) {
		e.end(s, "", fmt.Errorf("%w in the embedding", ErrNumeric))
		return
	}
	s.first = now
	e.countPrompt(s)
	e.memory.Vector(step, i, s.request.Vector)
	e.end(s, protocol.FinishStop, nil)
}

// token delivers the token in r to s and ends s if it is the last. now is the time at which the step completed; drafted
// says that the token had been guessed.
func (e *Engine) token(s *sequence, r *kernels.Record, now time.Time, drafted bool) {
	if isNaN(r) {
		e.end(s, "", fmt.Errorf("%w at token %d", ErrNumeric, s.tokens))
		return
	}
	if s.tokens == 0 {
		s.first = now
		e.countPrompt(s)
	}
	if e.endsWith(s, r.Token) {
		e.end(s, protocol.FinishStop, nil)
		return
	}
	t := Token{Index: s.tokens, ID: r.Token, Logprob: r.Logprob, Drafted: drafted}
	if drafted {
		s.drafting.accepted++
	}
	if len(r.Top) > 0 { // only requests for alternatives allocate
		t.Top = make([]TopToken, len(r.Top))
	}
	for i, a := range r.Top {
		t.Top[i] = TopToken{ID: a.Token, Logprob: a.Logprob}
	}
	s.tokens++
	s.drafting.plan.Token(r.Token)
	if s.scheduled.Promised() {
		s.scheduled.Sampled = append(s.scheduled.Sampled, r.Token)
	}
	s.request.Sink.Token(t)
	if s.tokens >= s.scheduled.MaxTokens && s.request.Format == nil {
		e.end(s, protocol.FinishLength, nil)
	}
}

// isNaN reports whether a record's logits were no numbers.
func isNaN(r *kernels.Record) bool { return math.IsNaN(float64(r.Logprob)) }

// endsWith reports whether a token that was drawn for s ends it.
func (e *Engine) endsWith(s *sequence, token int32) bool { return e.eos[token] && !s.request.IgnoreEOS }

// end removes s from the scheduler, which frees its slot and pages, and calls its Sink's Finish.
func (e *Engine) end(s *sequence, reason string, err error) {
	ran := s.scheduled.HasJoined()
	e.sched.Remove(&s.scheduled)
	e.files.forget(s)
	s.closeFormat()
	delete(e.sequences, s.handle)
	e.noteEnded(s.scheduled.User, ran)
	s.request.Sink.Finish(Finish{Reason: reason, Err: err, Timing: s.timing(), Graphs: s.graphs,
		Usage: protocol.Usage{PromptTokens: len(s.request.Tokens), CompletionTokens: s.tokens,
			CachedTokens: s.scheduled.Cached(), DraftedTokens: s.drafting.drafted,
			AcceptedTokens: s.drafting.accepted}})
}

// timing returns the request's phases in milliseconds; a phase that was not reached is 0.
func (s *sequence) timing() protocol.Timing {
	received := s.request.Received
	ms := func(from, to time.Time) float64 {
		if from.IsZero() || to.IsZero() {
			return 0
		}
		return milliseconds(to.Sub(from))
	}
	return protocol.Timing{QueueMS: ms(received, s.admitted), PrefillMS: ms(s.admitted, s.first),
		TTFTMS: ms(received, s.first), TotalMS: ms(received, time.Now())}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
