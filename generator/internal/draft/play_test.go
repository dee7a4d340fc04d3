package draft

import (
	"math/rand/v2"
	"testing"
	"time"
)

// byPolicy has a play ask its policy; any other number is the drafts of each step.
const byPolicy = -1

// play is a simulated engine: two steps are in flight, so a step is planned with the results of the last but one.
type play struct {
	policy  *Policy
	fixed   int
	cost    cost
	noise   float64 // a measured time is up to this part longer
	streams []*stream

	random *rand.Rand
	time   float64 // milliseconds
	steps  []step  // not reported yet
	seqs   []*Sequence
	may    []int
	drafts []int
}

// stream is one sequence of a play, with the text that it says.
type stream struct {
	Sequence
	text          []int32
	prompt, at    int // tokens
	stands        drafter
	off           bool
	delays        int // steps without a draft of its own that took over 5% longer than a plain one
	steps, drafts int // verify steps with drafts of its own
}

// drafter returns how many drafts, Longest at most, are the text after text[:at].
type drafter func(text []int32, at int) int

// cost returns milliseconds.
type cost func(sequences, queries int) float64

type step struct {
	queries                 int
	time                    float64
	from, drafted, accepted []int
}

func newPlay(rows, fixed int, cost cost, streams ...*stream) *play {
	p := &play{policy: New(Options{Most: Longest, Rows: rows, Lookup: true}), fixed: fixed, cost: cost, noise: 0.01,
		streams: streams, random: rand.New(rand.NewPCG(1, 2)),
		may: make([]int, len(streams)), drafts: make([]int, len(streams))}
	for _, s := range streams {
		s.at = s.prompt
		s.Begin(p.policy, s.text[:s.prompt], Longest)
		p.seqs = append(p.seqs, &s.Sequence)
	}
	return p
}

// run plays until the first text is said, and returns the tokens a millisecond.
func (p *play) run(t testing.TB) float64 {
	t.Helper()
	for !p.over() {
		p.step(p.plan(t))
		if len(p.steps) > 2 {
			p.report()
		}
	}
	tokens := 0
	for _, s := range p.streams {
		tokens += s.at - s.prompt
	}
	return float64(tokens) / p.time
}

func (p *play) over() bool {
	for _, s := range p.streams {
		if s.at >= len(s.text)-1 {
			return true
		}
	}
	return false
}

func (p *play) plan(t testing.TB) (most int) {
	t.Helper()
	for i, s := range p.streams {
		p.may[i] = min(Longest, len(s.text)-1-s.at)
		if s.off {
			p.may[i] = 0
		}
		p.drafts[i] = min(p.may[i], p.fixed)
		most = max(most, p.drafts[i])
	}
	if p.fixed == byPolicy {
		most = p.policy.Plan(p.seqs, p.may, p.drafts)
		checkPlan(t, p.policy.options, p.may, p.drafts, most)
	}
	return most
}

// checkPlan checks the bounds that every plan has.
func checkPlan(t testing.TB, o Options, may, drafts []int, most int) {
	t.Helper()
	largest := 0
	for i := range drafts {
		if drafts[i] < 0 || drafts[i] > may[i] || drafts[i] > o.Most {
			t.Fatalf("%d drafts where %d may be, %d at most", drafts[i], may[i], o.Most)
		}
		largest = max(largest, drafts[i])
	}
	if largest != most || most > 0 && len(drafts)*(most+1) > o.Rows {
		t.Fatalf("drafts %v, said to be %d at most, within %d rows", drafts, most, o.Rows)
	}
}

func (p *play) step(most int) {
	n := len(p.streams)
	d := step{queries: most + 1, time: p.cost(n, most+1)}
	for i, s := range p.streams {
		accepted := 0
		if p.drafts[i] > 0 {
			accepted = min(s.stands(s.text, s.at), p.drafts[i])
			s.steps++
			s.drafts += p.drafts[i]
		} else if d.time > 1.05*p.cost(n, 1) {
			s.delays++
		}
		d.from, d.drafted, d.accepted = append(d.from, s.at), append(d.drafted, p.drafts[i]), append(d.accepted, accepted)
		s.at += accepted + 1
	}
	p.time += d.time
	p.steps = append(p.steps, d)
}

func (p *play) report() {
	d := p.steps[0]
	p.steps = p.steps[1:]
	measured := d.time * (1 + p.noise*p.random.Float64())
	if p.random.IntN(200) == 0 {
		measured *= 3
	}
	p.policy.Took(len(p.streams), d.queries, time.Duration(measured*1e6))
	for i, s := range p.streams {
		for _, id := range s.text[d.from[i] : d.from[i]+d.accepted[i]+1] {
			s.Token(id)
		}
		if d.drafted[i] > 0 {
			s.Result(d.drafted[i], d.accepted[i])
		}
	}
}

// gpu is a device that reads its weights once for 8 rows, which cost so much more than one.
func gpu(eight float64) cost {
	return func(n, queries int) float64 {
		r := float64(n * queries)
		switch {
		case r <= 8:
			return 3.31 * (1 + eight*(r-1)/7)
		case r <= 16:
			return 3.31 * (1.30 + 0.18*(r-8)/8)
		}
		return 3.31 * (1.48 + 0.02*(r-16))
	}
}

// host is a device whose time grows with the rows.
func host(n, queries int) float64 { return 0.1 + 0.6*float64(n*queries) }

// novel is a text of tokens that do not come again.
func novel(n int) []int32 {
	text := make([]int32, n)
	for i := range text {
		text[i] = int32(i)
	}
	return text
}

// never is a drafter whose drafts fail.
func never([]int32, int) int { return 0 }

// stand is a drafter each of whose drafts stands with the chance, without memory.
func stand(seed uint64, chance float64) drafter {
	return func(_ []int32, at int) int {
		r := rand.New(rand.NewPCG(seed, uint64(at)))
		n := 0
		for n < Longest && r.Float64() < chance {
			n++
		}
		return n
	}
}

// lookup is the drafter of package kernels: the longest match of the last tokens, the last one among equals.
func lookup(text []int32, at int) int {
	last, end, most := at-1, at-2, 0
	for e := last - 1; e >= 0; e-- {
		m := 0
		for m < 16 && m <= e && text[e-m] == text[last-m] {
			m++
		}
		if m > most {
			end, most = e, m
		}
	}
	n := 0
	for n < Longest && at+n < len(text) && text[end+1+n] == text[at+n] {
		n++
	}
	return n
}
