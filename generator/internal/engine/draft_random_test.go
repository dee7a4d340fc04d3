package engine

import (
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// randomSampling returns random values of all fields, each of them off at times.
func randomSampling(r *rand.Rand, vocab int) Sampling {
	s := Sampling{TopP: 1, RepeatPenalty: 1, Seed: r.Uint64()}
	sometimes := func(set func()) {
		if r.IntN(3) == 0 {
			set()
		}
	}
	if r.IntN(4) > 0 {
		s.Temperature = 0.05 + 1.5*r.Float32()
	}
	sometimes(func() { s.TopK = 1 + r.IntN(vocab) })
	sometimes(func() { s.TopP = 0.1 + 0.9*r.Float32() })
	sometimes(func() { s.MinP = 0.5 * r.Float32() })
	sometimes(func() { s.RepeatPenalty = 0.5 + 1.5*r.Float32() })
	sometimes(func() { s.Logprobs = 1 + r.IntN(vocab) })
	sometimes(func() { s = edited(r, s, vocab) })
	return s
}

// draftedCase is a request, and what it gives alone without drafts.
type draftedCase struct {
	Request
	want   []Token
	reason string
}

// randomCase returns a random request with a prediction of which nothing, some or all is right, also past the end.
func randomCase(r *rand.Rand, c model.Config, reference alone) draftedCase {
	q := Request{Tokens: make([]int32, 1+r.IntN(30)), MaxTokens: 1 + r.IntN(34), IgnoreEOS: r.IntN(2) == 0,
		Sampling: randomSampling(r, c.Vocab), DraftTokens: r.IntN(1 + MaxDrafts)}
	for i, few := range q.Tokens {
		q.Tokens[i] = few + int32(r.IntN(1+r.IntN(c.Vocab)))
	}
	if r.IntN(3) == 0 {
		q.Format = randomAutomaton(r, c.Vocab, true)
	}
	all := q
	all.IgnoreEOS, all.Cache = true, CacheOff
	s := reference.complete(all)
	x := draftedCase{Request: q, want: s.tokens, reason: s.finish.Reason}
	if at := slices.IndexFunc(x.want, func(t Token) bool { return t.ID == eosToken }); at >= 0 && !q.IgnoreEOS {
		x.want, x.reason = x.want[:at], protocol.FinishStop
	}
	x.Prediction = predicted(r, s.tokens, c.Vocab)
	return x
}

// predicted returns a prediction of tokens of which all, some or little is right.
func predicted(r *rand.Rand, tokens []Token, vocab int) (list []int32) {
	wrong := r.IntN(3) // of six, squared
	for _, t := range tokens {
		if r.IntN(6) < wrong*wrong {
			t.ID = int32(r.IntN(vocab))
		}
		list = append(list, t.ID)
	}
	return list
}

// check compares what a request gave beside others with what it gives alone.
func (x *draftedCase) check(t *testing.T, s *sink, cancelled bool) {
	t.Helper()
	n, u := len(s.tokens), s.finish.Usage
	whole := n == len(x.want) && s.finish.Reason == x.reason
	if n > len(x.want) || !slices.EqualFunc(s.tokens, x.want[:n], sameToken) || !whole && !cancelled ||
		u.CompletionTokens != n || u.AcceptedTokens > u.DraftedTokens {
		t.Errorf("%+v\n   got %v %+v\n alone %v %q", x.Request, s.tokens, s.finish, x.want, x.reason)
	}
}

// draftEvents counts what happened in engines with drafts.
type draftEvents struct {
	drafted, accepted, eos, masked int                    // masked: of accepted, those of formats
	queries                        [1 + MaxDrafts + 1]int // verify passes by rows of a sequence
	widest                         int                    // sequences in a verify pass
}

// randomVerify returns random options with drafts, for batches of up to 32.
func randomVerify(r *rand.Rand) (Options, device.HostOptions) {
	o, host := randomBounds(r)
	randomDrafts(r, &o)
	o.Draft = []DraftKind{DraftLookup, DraftGiven, DraftModel}[r.IntN(3)]
	o.DraftTokens = []int{1 + r.IntN(MaxDrafts), MaxDrafts}[r.IntN(2)]
	if o.planDrafts != nil {
		o.planDrafts = randomPlan(r.Uint64(), o.DraftTokens)
	}
	o.DraftWindow = []int{0, 1 + r.IntN(30)}[r.IntN(2)]
	if r.IntN(2) == 0 {
		o.MaxBatch, o.Chunk = []int{1 + r.IntN(32), 32}[r.IntN(2)], 1+r.IntN(100)
		o.Pages += r.IntN(200)
		if o.MixedRows != nil {
			o.MixedRows = mixedRows(o, 1+r.IntN(4)) // there are other rows now
		}
	}
	return o, host
}

// beside runs the cases at once in an engine with random options, and checks each of them.
func (n *draftEvents) beside(t *testing.T, r *rand.Rand, c model.Config, cases []draftedCase) {
	o, host := randomVerify(r)
	drafters := draftersOf(c)
	b, err := tryBuildPair(t, c, drafters[r.IntN(len(drafters))], host, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // the roller's captures count too
	b.h.Trace(func(c device.Call) {
		mu.Lock()
		defer mu.Unlock()
		if op, ok := c.Op.(kernels.Accept); ok && op.Queries > 1 {
			n.queries[op.Queries]++
			n.widest = max(n.widest, op.T/op.Queries)
		}
	})
	b.run()
	sinks, cancelled := make([]*sink, len(cases)), make([]bool, len(cases))
	for i, x := range cases {
		x.User, x.Connection = User{UID: uint32(r.IntN(4))}, uint64(r.IntN(3))
		var h Handle
		if sinks[i], h = b.submit(x.Request); r.IntN(8) == 0 {
			cancelled[i] = true
			b.Cancel(h)
		}
		b.Relocate(h-Handle(r.IntN(int(h))), r.IntN(3))
	}
	for i := range cases {
		x, s := &cases[i], sinks[i].must(t)
		x.check(t, s, cancelled[i])
		u := s.finish.Usage
		n.drafted, n.accepted = n.drafted+u.DraftedTokens, n.accepted+u.AcceptedTokens
		if x.Format != nil {
			n.masked += u.AcceptedTokens
		}
		if s.finish.Reason == protocol.FinishStop && u.DraftedTokens > 0 {
			n.eos++
		}
	}
	if err := b.finish(); err != nil {
		t.Error(err)
	}
	b.baseline()
	if t.Failed() {
		t.Fatalf("with %+v", o)
	}
}

// longCases is the number of random requests of each family with REEL_LONG.
const longCases = 400

// randomCases is the number of random requests of each family.
func randomCases() int {
	if os.Getenv("REEL_LONG") != "" {
		return longCases
	}
	return 40
}

// Random requests over all fields of sampling, with formats and ends, beside each other in any batch, with any drafter
// and any numbers of drafts, give the tokens, log-probabilities and ends that they give alone without drafts, bit for
// bit: for models with windows, biases, head norms and quantised weights. REEL_LONG runs 2,400 requests.
func TestRandomRequestsAreThoseWithoutDrafts(t *testing.T) {
	t.Parallel()
	var n draftEvents
	for name, c := range families() {
		t.Run(name, func(t *testing.T) {
			c.EOS = []int32{eosToken}
			r, reference := seeded(t), aloneWith(t, c)
			for left := randomCases(); left > 0; {
				cases := make([]draftedCase, min(left, 1+r.IntN(60)))
				for i := range cases {
					cases[i] = randomCase(r, c, reference)
				}
				n.beside(t, r, c, cases)
				left -= len(cases)
			}
			if err := reference.finish(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("%+v", n)
	if n.accepted == 0 || n.accepted == n.drafted || n.eos == 0 || n.masked == 0 ||
		randomCases() == longCases && (slices.Min(n.queries[2:]) == 0 || n.widest < 12) {
		t.Error("some event that this test needs never happened")
	}
}
