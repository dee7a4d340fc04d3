package draft

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestPlansStayInBounds plays random steps, results and times, also senseless ones.
func TestPlansStayInBounds(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		o := Options{Most: r.IntN(10), Rows: 1 + r.IntN(300), Lookup: r.IntN(2) == 0}
		p := New(o)
		o.Most = min(o.Most, Longest)
		seqs := make([]*Sequence, 40)
		most := make([]int, len(seqs))
		for i := range seqs {
			most[i] = r.IntN(9) - 1
			seqs[i] = &Sequence{}
			seqs[i].Begin(p, randomTokens(r, 50), most[i])
		}
		for range 100 {
			n := r.IntN(len(seqs) + 1)
			may, drafts := make([]int, n), make([]int, n)
			for i := range may {
				may[i] = r.IntN(10) - 1
			}
			k := p.Plan(seqs[:n], may, drafts)
			for i := range may {
				may[i] = max(0, min(may[i], most[i]))
			}
			checkPlan(t, o, may, drafts, k)
			checkPlanned(t, seqs[:n], drafts, k)
			p.Took(r.IntN(50)-1, r.IntN(11)-1, time.Duration(r.ExpFloat64()*float64(r.IntN(3)-1)*1e6))
			p.Took(n, k+1, time.Duration(r.ExpFloat64()*1e6))
			for i, s := range seqs[:n] {
				accepted := r.IntN(drafts[i] + 1)
				for range accepted + 1 {
					s.Token(int32(r.IntN(5)))
				}
				if drafts[i] > 0 && r.IntN(9) > 0 {
					s.Result(drafts[i], accepted)
				}
			}
			checkSequences(t, seqs)
		}
	}
}

// checkPlanned checks that sequences with drafts expect the result of the step that was planned.
func checkPlanned(t *testing.T, seqs []*Sequence, drafts []int, most int) {
	t.Helper()
	for i, s := range seqs {
		if f := s.flying; drafts[i] > 0 && f.steps[f.count-1].queries != most+1 {
			t.Fatalf("a step of %d queries, planned as one of %d", most+1, f.steps[f.count-1].queries)
		}
	}
}

func randomTokens(r *rand.Rand, n int) []int32 {
	tokens := make([]int32, r.IntN(n))
	for i := range tokens {
		tokens[i] = int32(r.IntN(5))
	}
	return tokens
}

// checkSequences checks that chances stay chances, and that nobody saves more than the bound.
func checkSequences(t *testing.T, seqs []*Sequence) {
	t.Helper()
	for _, s := range seqs {
		if s.credit > mostSavings || s.wait > longestWait || s.pause > longestWait {
			t.Fatalf("%v steps saved, a wait of %d, then of %d", s.credit, s.wait, s.pause)
		}
		for i := range s.rates {
			for _, r := range []rate{s.rates[i].first, s.rates[i].rest} {
				if s.most > 0 && !(r.mean() >= 0 && r.mean() <= 1) {
					t.Fatalf("an acceptance of %v", r.mean())
				}
			}
		}
	}
}

// TestTheZeroSequenceGetsNothing: an engine need not begin a sequence that never gets drafts.
func TestTheZeroSequenceGetsNothing(t *testing.T) {
	p := New(Options{Most: Longest, Rows: 64, Lookup: true})
	var s Sequence
	for range 100 {
		if k := p.Plan([]*Sequence{&s}, []int{Longest}, []int{0}); k != 0 {
			t.Fatalf("%d drafts", k)
		}
		p.Took(1, 1, time.Millisecond)
		s.Token(1)
		s.Result(1, 1)
	}
}

// TestNothingIsAllocated: the engine's steady state does not allocate.
func TestNothingIsAllocated(t *testing.T) {
	b := newBusy(8)
	for range 1000 {
		b.step()
	}
	if n := testing.AllocsPerRun(1000, b.step); n > 0 {
		t.Errorf("%v allocations a step", n)
	}
	long := novel(100_000)
	var s Sequence
	begin := func() {
		s.Begin(b.policy, long, Longest)
		s.Token(1)
	}
	begin()
	if n := testing.AllocsPerRun(10, begin); n > 0 {
		t.Errorf("%v allocations for a sequence that begins again", n)
	}
}

// busy has sequences that copy, and steps that need no engine.
type busy struct {
	policy      *Policy
	seqs        []*Sequence
	may, drafts []int
	said        int32
}

func newBusy(n int) *busy {
	b := &busy{policy: New(Options{Most: Longest, Rows: 256, Lookup: true}), may: make([]int, n), drafts: make([]int, n)}
	for i := range n {
		s := &Sequence{}
		s.Begin(b.policy, excerpts(50, 500), Longest)
		b.seqs, b.may[i] = append(b.seqs, s), Longest
	}
	return b
}

func (b *busy) step() {
	k := b.policy.Plan(b.seqs, b.may, b.drafts)
	b.policy.Took(len(b.seqs), k+1, time.Duration(3e6+1e5*k))
	for i, s := range b.seqs {
		for range b.drafts[i]/2 + 1 {
			b.said++
			s.Token(b.said & 63)
		}
		if b.drafts[i] > 0 {
			s.Result(b.drafts[i], b.drafts[i]/2)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1, 8, 32} {
		busy := newBusy(n)
		for range 100 {
			busy.step()
		}
		b.Run(map[int]string{1: "1", 8: "8", 32: "32"}[n], func(b *testing.B) {
			for b.Loop() {
				busy.policy.Plan(busy.seqs, busy.may, busy.drafts)
			}
		})
	}
}

func BenchmarkToken(b *testing.B) {
	busy := newBusy(1)
	for i := int32(0); b.Loop(); i++ {
		busy.seqs[0].Token(i & 1023)
	}
}

// BenchmarkBegin begins with a prompt of 4,000 tokens, half of which is read later.
func BenchmarkBegin(b *testing.B) {
	p, prompt := New(Options{Most: Longest, Rows: 256, Lookup: true}), novel(4000)
	var s Sequence
	for b.Loop() {
		s.Begin(p, prompt, Longest)
		s.Token(1)
	}
}
