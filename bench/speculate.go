package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// ErrTokensDiffer means that a generator gave other tokens or log-probabilities with drafts than without.
var ErrTokensDiffer = errors.New("drafts change tokens or log-probabilities, which is a fault")

// SpeculateOptions are the options of [MeasureSpeculate].
type SpeculateOptions struct {
	Streams []int // requests at once, of each row
	// Acceptances are probabilities of an oracle's guesses to be right, a row each; the generator's drafter has to be
	// protocol.DrafterGiven. Empty: the generator's own drafter guesses.
	Acceptances []float64
	Draft       client.Draft // of the requests that are guessed
	Sets        int          // of prompts, one for each stream
	Rounds      int          // each measures every set without drafts and with
	Prompt      int          // tokens, random ones; the second half is the first half again
	Lines       []Line       // used instead, cyclically, unless empty
	MaxTokens   int          // of each completion, at least 2
	Temperature float64
	Seed        uint64
	Progress    Progress
}

// Speculate is the result of [MeasureSpeculate].
type Speculate struct {
	Head
	Drafter     string         `json:"drafter"`
	Draft       string         `json:"draft"` // of the requests: on, or a number
	Prompt      string         `json:"prompt_tokens"`
	MaxTokens   int            `json:"max_tokens"`
	Temperature float64        `json:"temperature"`
	Rows        []SpeculateRow `json:"rows"`
}

// SpeculateRow is the result for a number of streams and, with an oracle, an acceptance.
type SpeculateRow struct {
	Streams    int      `json:"streams"`
	Acceptance *float64 `json:"acceptance,omitempty"` // that the oracle aims at
	// Off and On are times of a token after the first, in milliseconds, one for each completion.
	Off []float64 `json:"off_ms_per_token"`
	On  []float64 `json:"on_ms_per_token"`
	// Speed is the median, over the completions, of the time without drafts by that with.
	Speed      float64 `json:"speed"`
	Tokens     int     `json:"tokens"` // of completions with drafts
	Drafted    int     `json:"drafted_tokens"`
	Accepted   int     `json:"accepted_tokens"`
	TokensStep float64 `json:"tokens_per_step"` // Tokens / (Tokens - Accepted)
	Compared   int     `json:"compared"`        // completions, those before the measurement too
	Differing  int     `json:"differing"`       // those of them that differ from the first, without drafts
}

// MeasureSpeculate measures what guesses gain: the same requests with drafts and without, in turn. It compares tokens
// and log-probabilities, bit for bit. Errors are ErrOptions, and those of the generator.
func MeasureSpeculate(ctx context.Context, g statusReporter, o SpeculateOptions) (*Speculate, error) {
	status, err := g.Status(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.check(status.Drafts, g.Limits()); err != nil {
		return nil, err
	}
	report := &Speculate{Head: Head{Kind: "speculate"}, Drafter: status.Drafts.Drafter, Draft: o.Draft.String(),
		Prompt: fmt.Sprint(o.Prompt), MaxTokens: o.MaxTokens, Temperature: o.Temperature}
	if len(o.Lines) > 0 {
		report.Prompt = "file"
	}
	m := speculation{SpeculateOptions: o, g: g, oracle: o.Acceptances}
	if len(m.oracle) == 0 {
		m.oracle = []float64{-1} // there is none
	}
	for _, streams := range o.Streams {
		rows, err := m.rows(ctx, streams)
		if err != nil {
			return nil, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	report.warnOfDifferences()
	return report, nil
}

func (o *SpeculateOptions) check(d protocol.Drafts, limits client.Limits) error {
	for _, a := range o.Acceptances {
		if !(a >= 0 && a <= 1) {
			return fmt.Errorf("%w: an acceptance of %g: it must be 0 to 1", ErrOptions, a)
		}
	}
	for _, n := range o.Streams {
		if n < 1 || n > maxPerConnection {
			return fmt.Errorf("%w: %d streams: there must be 1 to %d", ErrOptions, n, maxPerConnection)
		}
	}
	switch {
	case len(o.Streams) == 0 || o.Sets < 1 || o.Rounds < 1 || o.MaxTokens < 2 || o.Prompt < 1:
		return fmt.Errorf("%w: streams, prompts and rounds must be 1 or more, and completions have 2 tokens", ErrOptions)
	case len(o.Lines) == 0 && o.Prompt+o.MaxTokens > limits.Context:
		return fmt.Errorf("%w: %d prompt tokens and %d more do not fit the context of %d", ErrOptions, o.Prompt,
			o.MaxTokens, limits.Context)
	case o.Draft.Most() == 0:
		return fmt.Errorf("%w: --draft %s guesses nothing", ErrOptions, o.Draft)
	case len(o.Acceptances) > 0 && d.Drafter != protocol.DrafterGiven:
		return fmt.Errorf("%w: an acceptance needs a generator with --draft given, and this one has %q", ErrOptions,
			d.Drafter)
	case len(o.Acceptances) == 0 && d.Drafter == protocol.DrafterGiven:
		return fmt.Errorf("%w: a generator with --draft given needs --acceptance", ErrOptions)
	case d.Drafter == "" || d.Drafter == protocol.DrafterOff || d.Tokens == 0:
		return fmt.Errorf("%w: the generator guesses nothing: start it with --draft lookup", ErrOptions)
	}
	return nil
}

// speculation is the state of a measurement.
type speculation struct {
	SpeculateOptions
	g      statusReporter
	oracle []float64 // acceptances; -1: the generator guesses by itself
	done   int
}

// said is a completion.
type said struct {
	tokens   []int32
	logprobs []uint64 // bits
	perToken float64  // milliseconds of each token after the first
	usage    protocol.Usage
}

// rows measures a row for each acceptance. Every set of prompts is completed once before, with log-probabilities:
// without drafts, which tells an oracle the tokens, and for each row with them. What is measured has no
// log-probabilities, since a generator sends them in a slower way.
func (m *speculation) rows(ctx context.Context, streams int) ([]SpeculateRow, error) {
	sets, plain := m.prompts(streams), make([][]said, m.Sets)
	for i, set := range sets {
		var err error
		if plain[i], err = m.complete(ctx, withLogprobs(set), nil); err != nil {
			return nil, err
		}
	}
	var rows []SpeculateRow
	for _, acceptance := range m.oracle {
		row := SpeculateRow{Streams: streams}
		if acceptance >= 0 {
			row.Acceptance = &acceptance
		}
		for i, set := range sets {
			drafted, err := m.complete(ctx, withLogprobs(m.guessed(set, plain[i], acceptance, 0)), &m.Draft)
			if err != nil {
				return nil, err
			}
			row.compare(plain[i], drafted)
		}
		if err := m.row(ctx, &row, sets, plain, acceptance); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// row measures all rounds of a row. Whether drafts are first alternates, so that drift cancels.
func (m *speculation) row(
	ctx context.Context, row *SpeculateRow, sets [][]client.Request, plain [][]said, acceptance float64,
) error {
	var ratios []float64
	for round := range m.Rounds {
		for i, set := range sets {
			var of [2][]said // without and with drafts
			for k := range 2 {
				which := (round + i + k) % 2
				requests, draft := set, (*client.Draft)(nil)
				if which == 1 {
					requests, draft = m.guessed(set, plain[i], acceptance, round), &m.Draft
				}
				var err error
				if of[which], err = m.complete(ctx, requests, draft); err != nil {
					return err
				}
			}
			for s := range set {
				row.add(&of[0][s], &of[1][s])
				ratios = append(ratios, of[0][s].perToken/of[1][s].perToken)
			}
			row.compare(plain[i], of[0])
			row.compare(plain[i], of[1])
			m.step()
		}
	}
	row.Speed = median(ratios)
	row.TokensStep = float64(row.Tokens) / float64(max(1, row.Tokens-row.Accepted))
	return nil
}

func (m *speculation) step() {
	m.done++
	if m.Progress != nil {
		m.Progress(m.done, len(m.Streams)*len(m.oracle)*m.Rounds*m.Sets)
	}
}

// add adds a completion without drafts and the one with drafts.
func (r *SpeculateRow) add(off, on *said) {
	r.Off, r.On = append(r.Off, off.perToken), append(r.On, on.perToken)
	r.Tokens += len(on.tokens)
	r.Drafted += on.usage.DraftedTokens
	r.Accepted += on.usage.AcceptedTokens
}

// compare counts the completions that differ from the first ones, without drafts.
func (r *SpeculateRow) compare(plain, others []said) {
	r.Compared += len(others)
	for s := range others {
		other := &others[s]
		if !slices.Equal(other.tokens, plain[s].tokens) ||
			other.logprobs != nil && !slices.Equal(other.logprobs, plain[s].logprobs) {
			r.Differing++
		}
	}
}

// prompts returns the sets of requests, which differ by prompt and seed.
func (m *speculation) prompts(streams int) [][]client.Request {
	random := rand.New(rand.NewPCG(m.Seed, uint64(streams)))
	sets := make([][]client.Request, m.Sets)
	for i := range sets {
		for s := range streams {
			request := client.Request{MaxTokens: &m.MaxTokens, Temperature: &m.Temperature, IgnoreEOS: true,
				Seed: new(random.Uint64()), Cache: protocol.CacheOff}
			if n := len(m.Lines); n > 0 {
				m.Lines[(i*streams+s)%n].fill(&request, random, m.g.Limits().Vocab)
			} else {
				request.Tokens = repeating(random, m.Prompt, m.g.Limits().Vocab)
			}
			sets[i] = append(sets[i], request)
		}
	}
	return sets
}

// withLogprobs returns requests that want the log-probability of each token.
func withLogprobs(requests []client.Request) []client.Request {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].Logprobs = new(0)
	}
	return requests
}

// repeating returns n tokens: random ones, then the same again.
func repeating(random *rand.Rand, n, vocab int) []int32 {
	half := prompt(random, (n+1)/2, vocab)
	return slices.Concat(half, half)[:n]
}

// fill sets the prompt of a request.
func (l *Line) fill(r *client.Request, random *rand.Rand, vocab int) {
	r.Prompt, r.Tokens = l.Prompt, l.Tokens
	if l.PromptTokens > 0 {
		r.Tokens = repeating(random, l.PromptTokens, vocab)
	}
	if l.OutputTokens > 0 {
		r.MaxTokens = new(max(2, l.OutputTokens))
	}
}

// guessed returns requests with what an oracle predicts of their completions: each token is right with a probability.
func (m *speculation) guessed(requests []client.Request, plain []said, acceptance float64, round int) []client.Request {
	if acceptance < 0 {
		return requests
	}
	requests = slices.Clone(requests)
	for s := range requests {
		random := rand.New(rand.NewPCG(*requests[s].Seed, uint64(round)))
		requests[s].Prediction = slices.Clone(plain[s].tokens)
		for i := range requests[s].Prediction {
			if right := random.Float64() < acceptance; !right {
				requests[s].Prediction[i] = another(random, plain[s].tokens[i], m.g.Limits().Vocab)
			}
		}
	}
	return requests
}

// another returns a token other than t.
func another(random *rand.Rand, t int32, vocab int) int32 {
	return int32((int(t) + 1 + random.IntN(max(1, vocab-1))) % vocab)
}

// complete makes completions at once; without a draft nothing is guessed.
func (m *speculation) complete(ctx context.Context, requests []client.Request, draft *client.Draft) ([]said, error) {
	if draft == nil {
		draft = &client.Draft{Word: protocol.DraftOff}
	}
	all, errs := make([]said, len(requests)), make([]error, len(requests))
	var running sync.WaitGroup
	for i, r := range requests {
		r.Draft = draft
		running.Go(func() { all[i], errs[i] = m.say(ctx, r) })
	}
	running.Wait()
	return all, errors.Join(errs...)
}

// say makes one completion.
func (m *speculation) say(ctx context.Context, r client.Request) (s said, err error) {
	var done client.Done
	r.Done = &done
	var first, last time.Time
	for t, err := range m.g.Generate(ctx, r) {
		if err != nil {
			return s, err
		}
		if last = time.Now(); first.IsZero() {
			first = last
		}
		s.tokens = append(s.tokens, t.Token)
		if t.Logprob != nil {
			s.logprobs = append(s.logprobs, math.Float64bits(*t.Logprob))
		}
	}
	if len(s.tokens) != *r.MaxTokens || r.Logprobs != nil && len(s.logprobs) != len(s.tokens) {
		return s, fmt.Errorf("a completion of %d tokens and %d log-probabilities ended with %q: want %d", len(s.tokens),
			len(s.logprobs), done.FinishReason, *r.MaxTokens)
	}
	s.perToken = milliseconds(max(last.Sub(first), 1)) / float64(len(s.tokens)-1)
	s.usage = done.Usage
	return s, nil
}
