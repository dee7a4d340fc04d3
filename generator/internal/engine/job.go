package engine

import (
	"errors"
	"fmt"
	"math"
	"time"

	"reel/generator/internal/scheduler"
	"reel/kernels"
	"reel/protocol"
)

// Errors with which a request ends; Finish.Err wraps them.
var (
	ErrDevice  = errors.New("engine: the device failed")
	ErrNumeric = errors.New("engine: the model produced a value that is not a number")
	// errNoResult comes with ErrDevice: a sequence that waits for a token would
	// wait for ever.
	errNoResult = errors.New("engine: a step is done, and its result is another step's")
)

// What the protocol promises of sampling is what the ops compute: constants that
// differ do not compile.
var (
	_ = [1]struct{}{}[kernels.PenaltyWindow-protocol.PenaltyWindow]
	_ = [1]struct{}{}[kernels.MaxTop-protocol.MaxLogprobs]
)

// job is a request on its way.
type job struct {
	handle  Handle
	request *Request
	seq     scheduler.Sequence

	admitted, first time.Time
	tokens          int
	graphs          protocol.Graphs
}

func newJob(h Handle, r *Request) *job {
	s := r.Sampling
	j := &job{handle: h, request: r}
	j.seq = scheduler.Sequence{Prompt: r.Tokens, MaxTokens: r.MaxTokens, User: r.User, Connection: r.Connection, Owner: j}
	j.seq.Sampling = kernels.Sampling{
		Temperature: s.Temperature, TopK: int32(s.TopK), TopP: s.TopP, MinP: s.MinP,
		RepeatPenalty: s.RepeatPenalty, Logprobs: int32(s.Logprobs), Seed: s.Seed}
	return j
}

// deliver reads the step's results and hands each token to its request. Those of
// sequences that have left are dropped.
func (e *Engine) deliver(b *scheduler.Batch) error {
	now, r := time.Now(), &e.result
	for i, q := range b.Sampled {
		if !q.Running() {
			continue
		}
		e.memory.Result(b.Step.Number, i, r)
		slot, generation := q.Slot()
		if r.Step != b.Step.Number || r.Slot != slot || r.Generation != generation {
			return fmt.Errorf("%w: step %d, slot %d, generation %d; there is step %d, slot %d, generation %d", errNoResult,
				b.Step.Number, slot, generation, r.Step, r.Slot, r.Generation)
		}
		e.token(q.Owner.(*job), r, now)
	}
	return nil
}

// token takes one token of j and ends j where it is the last.
func (e *Engine) token(j *job, r *kernels.Result, now time.Time) {
	if math.IsNaN(float64(r.Logprob)) {
		e.end(j, "", fmt.Errorf("%w at token %d", ErrNumeric, j.tokens))
		return
	}
	if j.tokens == 0 {
		j.first = now
	}
	if e.eos[r.Token] && !j.request.IgnoreEOS {
		e.end(j, protocol.FinishStop, nil)
		return
	}
	t := Token{Index: j.tokens, ID: r.Token, Logprob: r.Logprob}
	if len(r.Top) > 0 { // who asks for alternatives gets memory for them, nobody else
		t.Top = make([]TopToken, len(r.Top))
	}
	for i, a := range r.Top {
		t.Top[i] = TopToken{ID: a.Token, Logprob: a.Logprob}
	}
	j.tokens++
	j.request.Sink.Token(t)
	if j.tokens >= j.seq.MaxTokens {
		e.end(j, protocol.FinishLength, nil)
	}
}

// end takes j out, frees what it held, and tells its Sink.
func (e *Engine) end(j *job, reason string, err error) {
	ran := j.seq.Running()
	e.sched.Remove(&j.seq)
	delete(e.live, j.handle)
	e.ended(j.seq.User, ran)
	j.request.Sink.Finish(Finish{Reason: reason, Err: err, Timing: j.timing(), Graphs: j.graphs,
		Usage: protocol.Usage{PromptTokens: len(j.request.Tokens), CompletionTokens: j.tokens}})
}

// timing tells where the time went; phases that were not reached are 0.
func (j *job) timing() protocol.Timing {
	received := j.request.Received
	ms := func(from, to time.Time) float64 {
		if from.IsZero() || to.IsZero() {
			return 0
		}
		return milliseconds(to.Sub(from))
	}
	return protocol.Timing{QueueMS: ms(received, j.admitted), PrefillMS: ms(j.admitted, j.first),
		TTFTMS: ms(received, j.first), TotalMS: ms(received, time.Now())}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
