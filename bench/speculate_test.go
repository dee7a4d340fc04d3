package bench

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// guessing is a generator whose steps take 4 ms, and 5 ms with drafts. Token i of a completion is the first of its
// prompt plus i. Of the guesses of a drafter of its own the first one is right.
type guessing struct {
	drafter string
	wrong   func(r client.Request, i int) (logprob, token bool) // says where a completion differs
	short   bool

	mu       sync.Mutex
	requests []client.Request
}

func (g *guessing) Limits() client.Limits { return client.Limits{Context: 400, Vocab: 1000} }

func (g *guessing) Status(context.Context) (*client.Status, error) {
	return &client.Status{Drafts: protocol.Drafts{Drafter: g.drafter, Tokens: 7}}, nil
}

func (g *guessing) Generate(_ context.Context, r client.Request) iter.Seq2[client.Token, error] {
	g.mu.Lock()
	g.requests = append(g.requests, r)
	g.mu.Unlock()
	return func(yield func(client.Token, error) bool) {
		n, step := *r.MaxTokens, 4*time.Millisecond
		if g.short {
			n--
		}
		most := r.Draft.Most()
		if most > 0 {
			step = 5 * time.Millisecond
		}
		for i := 0; i < n; {
			time.Sleep(step) // by synctest's clock
			drafts := min(most, n-i-1)
			stand := g.stand(r, i, drafts)
			r.Done.Usage.DraftedTokens += drafts
			r.Done.Usage.AcceptedTokens += stand
			for range 1 + stand {
				yield(g.token(r, i), nil)
				i++
			}
		}
		r.Done.FinishReason = protocol.FinishLength
	}
}

// token returns token i of a completion.
func (g *guessing) token(r client.Request, i int) client.Token {
	t, logprob := client.Token{Index: i, Token: r.Tokens[0] + int32(i)}, -float64(i)
	if g.wrong != nil {
		other, another := g.wrong(r, i)
		if other {
			logprob = math.Nextafter(logprob, 1)
		}
		if another {
			t.Token++
		}
	}
	if r.Logprobs != nil {
		t.Logprob = &logprob
	}
	return t
}

// stand returns how many drafts from token i on are right.
func (g *guessing) stand(r client.Request, i, most int) (n int) {
	if g.drafter != protocol.DrafterGiven {
		return min(1, most)
	}
	for n < most && i+n < len(r.Prediction) && r.Prediction[i+n] == r.Tokens[0]+int32(i+n) {
		n++
	}
	return n
}

// speculated measures g.
func speculated(t *testing.T, g *guessing, o SpeculateOptions) (report *Speculate, err error) {
	synctest.Test(t, func(t *testing.T) { report, err = MeasureSpeculate(t.Context(), g, o) })
	return report, err
}

var twoStreams = SpeculateOptions{Streams: []int{1, 2}, Draft: client.Draft{Tokens: 3}, Sets: 2, Rounds: 2, Prompt: 9,
	MaxTokens: 41, Seed: 1}

// Each prompt is completed with drafts and without, as often first, with the same seed, and nothing else differs.
func TestMeasureSpeculate(t *testing.T) {
	g := &guessing{drafter: protocol.DrafterLookup}
	steps, o := 0, twoStreams
	o.Progress = func(done, of int) {
		if steps++; done != steps || of != 8 {
			t.Errorf("progress %d of %d at step %d", done, of, steps)
		}
	}
	got, err := speculated(t, g, o)
	if err != nil || len(got.Rows) != 2 || steps != 8 || got.Err() != nil || len(got.Warnings) != 0 {
		t.Fatalf("%+v, %v, %d steps", got, err, steps)
	}
	for i, row := range got.Rows {
		n := 4 * (i + 1)
		// 4 ms a token without drafts; 5 ms for two tokens with them.
		if row.Streams != i+1 || len(row.On) != n || len(row.Off) != n || math.Abs(row.Off[0]-4) > 0.01 ||
			math.Abs(row.Speed-1.6) > 0.05 || row.Tokens != 41*n || row.Acceptance != nil {
			t.Errorf("%+v", row)
		}
		if want := 41.0 / 21; math.Abs(row.TokensStep-want) > 0.06 {
			t.Errorf("%g tokens a step, want about %g", row.TokensStep, want)
		}
	}
	checkTurns(t, g.requests[:12]) // of one stream
}

// checkTurns checks the requests of a row with one stream.
func checkTurns(t *testing.T, all []client.Request) {
	t.Helper()
	for i, r := range all[:4] { // two sets without drafts, and with
		if *r.Logprobs != 0 || (r.Draft.Most() == 3) != (i >= 2) {
			t.Errorf("before the measurement %+v", r)
		}
	}
	measured := all[4:]
	firsts := 0
	for i := 0; i+1 < len(measured); i += 2 {
		a, b := measured[i], measured[i+1]
		if a.Draft.Most()+b.Draft.Most() != 3 || *a.Seed != *b.Seed || !slices.Equal(a.Tokens, b.Tokens) ||
			a.Cache != protocol.CacheOff || !a.IgnoreEOS || a.Logprobs != nil || b.Logprobs != nil ||
			a.Prediction != nil {
			t.Errorf("a pair of %+v and %+v", a, b)
		}
		if a.Draft.Most() == 3 {
			firsts++
		}
		if half := 5; !slices.Equal(a.Tokens[half:], a.Tokens[:4]) {
			t.Errorf("the prompt %v does not repeat itself", a.Tokens)
		}
	}
	if len(measured) != 8 || firsts != 2 {
		t.Errorf("of %d pairs drafts are first in %d", len(measured)/2, firsts)
	}
}

// An oracle's guesses are right as often as asked for.
func TestMeasureOracle(t *testing.T) {
	g := &guessing{drafter: protocol.DrafterGiven}
	o := twoStreams
	o.Streams, o.Acceptances, o.MaxTokens, o.Rounds = []int{1}, []float64{0, 0.5, 1}, 300, 4
	got, err := speculated(t, g, o)
	if err != nil || len(got.Rows) != 3 || got.Err() != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	// With three drafts of which each is right with probability a, a step gives 1 + a + a² + a³ tokens.
	for i, want := range []float64{1, 1.875, 4} {
		if row := got.Rows[i]; *row.Acceptance != o.Acceptances[i] || math.Abs(row.TokensStep-want) > 0.12*want {
			t.Errorf("%g: %g tokens a step, want about %g", *row.Acceptance, row.TokensStep, want)
		}
	}
	if charts := got.Charts(); len(charts) != 1 || len(charts[0].Series) != 1 || len(charts[0].Series[0].X) != 3 {
		t.Errorf("%+v", charts)
	}
	if m := got.Metrics(); len(m) != 6 || m[5].Name != "speculate/given/streams=1/acceptance=1/on" ||
		len(m[5].Values) != 8 {
		t.Errorf("%+v", m)
	}
}

// One bit of a log-probability that differs with drafts is found, and a token that differs while it is measured.
func TestSpeculateComparesBits(t *testing.T) {
	for name, g := range map[string]*guessing{
		"log-probability": {wrong: func(r client.Request, i int) (logprob, token bool) {
			return i == 40 && r.Logprobs != nil && r.Draft.Most() > 0, false
		}},
		"token with drafts": {wrong: func(r client.Request, i int) (logprob, token bool) {
			return false, i == 40 && r.Logprobs == nil && r.Draft.Most() > 0
		}},
		"token without drafts": {wrong: func(r client.Request, i int) (logprob, token bool) {
			return false, i == 0 && r.Logprobs == nil && r.Draft.Most() == 0
		}},
	} {
		g.drafter = protocol.DrafterLookup
		got, err := speculated(t, g, twoStreams)
		if err != nil || !errors.Is(got.Err(), ErrTokensDiffer) || len(got.Warnings) != 2 ||
			!strings.Contains(got.Warnings[0], "lookup, 1 stream: ") {
			t.Fatalf("%s: %+v, %v", name, got, err)
		}
		if row, want := got.Rows[0], 4; row.Compared != 10 || row.Differing != want && name != "log-probability" {
			t.Errorf("%s: %d of %d differ", name, row.Differing, row.Compared)
		}
	}
}

// A measurement that cannot be made is refused.
func TestSpeculateOptions(t *testing.T) {
	for want, change := range map[string]func(*SpeculateOptions, *guessing){
		"must be 0 to 1":          func(o *SpeculateOptions, _ *guessing) { o.Acceptances = []float64{math.NaN()} },
		"0 streams":               func(o *SpeculateOptions, _ *guessing) { o.Streams = []int{0} },
		"completions have 2":      func(o *SpeculateOptions, _ *guessing) { o.MaxTokens = 1 },
		"do not fit the context":  func(o *SpeculateOptions, _ *guessing) { o.Prompt = 360 },
		"guesses nothing":         func(o *SpeculateOptions, _ *guessing) { o.Draft = client.Draft{} },
		"with --draft given":      func(o *SpeculateOptions, _ *guessing) { o.Acceptances = []float64{1} },
		"needs --acceptance":      func(_ *SpeculateOptions, g *guessing) { g.drafter = protocol.DrafterGiven },
		"start it with --draft":   func(_ *SpeculateOptions, g *guessing) { g.drafter = protocol.DrafterOff },
		"40 tokens and 40 log-pr": func(_ *SpeculateOptions, g *guessing) { g.short = true },
	} {
		o, g := twoStreams, &guessing{drafter: protocol.DrafterLookup}
		change(&o, g)
		if _, err := speculated(t, g, o); err == nil || !strings.Contains(err.Error(), want) ||
			!g.short && !errors.Is(err, ErrOptions) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
