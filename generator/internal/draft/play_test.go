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
	noise   float64 // a measured time is up to this part longer, and now and then three times as long
	streams []*stream

	random  *rand.Rand
	now     int
	pending []step    // not reported yet
	running []*stream // of the step that is being formed, and what Plan is called with:
	seqs    []*Sequence
	may     []int
	drafts  []int
}

// stream is one sequence of a play, with the text that it says.
type stream struct {
	Sequence
	text   []int32
	prompt int // tokens
	start  int // the step at which it comes
	stands drafter
	off    bool
	at     int     // tokens, the prompt's included
	time   float64 // that it ran, in plain steps
	steps  int     // verify steps with drafts of its own
	drafts int
	delays int // steps without a draft of its own that took over 5% longer than a plain one
}

// speed returns the tokens of the stream for one of plain decoding.
func (s *stream) speed() float64 { return float64(s.at-s.prompt) / s.time }

// drafter returns how many drafts, Longest at most, are the text after text[:at].
type drafter func(text []int32, at int) int

// cost returns milliseconds.
type cost func(sequences, queries int) float64

type step struct {
	queries                 int
	time                    float64
	streams                 []*stream
	from, drafted, accepted []int
}

func newPlay(rows, fixed int, cost cost, streams ...*stream) *play {
	p := &play{policy: New(Options{Most: Longest, Rows: rows, Lookup: true}), fixed: fixed, cost: cost, noise: 0.01,
		streams: streams, random: rand.New(rand.NewPCG(1, 2))}
	for _, s := range streams {
		s.at = s.prompt
		s.Begin(p.policy, s.text[:s.prompt], Longest)
	}
	return p
}

// run plays until all texts are said, and returns the tokens for one of plain decoding, averaged over the streams.
func (p *play) run(t testing.TB) float64 {
	t.Helper()
	for p.next() {
		p.step(p.plan(t))
		if len(p.pending) > 2 {
			p.report()
		}
	}
	tokens, time := 0, 0.0
	for _, s := range p.streams {
		tokens, time = tokens+s.at-s.prompt, time+s.time
	}
	return float64(tokens) / time
}

// next finds the streams of the next step. It returns false if none is left.
func (p *play) next() bool {
	p.running, p.seqs, p.may, p.drafts = p.running[:0], p.seqs[:0], p.may[:0], p.drafts[:0]
	left := false
	for _, s := range p.streams {
		room := min(Longest, len(s.text)-1-s.at)
		left = left || room > 0
		if room <= 0 || p.now < s.start {
			continue
		}
		if s.off {
			room = 0
		}
		p.running, p.seqs = append(p.running, s), append(p.seqs, &s.Sequence)
		p.may, p.drafts = append(p.may, room), append(p.drafts, 0)
	}
	p.now++
	return left
}

func (p *play) plan(t testing.TB) (most int) {
	t.Helper()
	if p.fixed == byPolicy {
		most = p.policy.Plan(p.seqs, p.may, p.drafts)
		checkPlan(t, p.policy.options, p.may, p.drafts, most)
		return most
	}
	for i := range p.running {
		p.drafts[i] = min(p.may[i], p.fixed)
		most = max(most, p.drafts[i])
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
	n := len(p.running)
	if n == 0 {
		return
	}
	d := step{queries: most + 1, time: p.cost(n, most+1), streams: append([]*stream(nil), p.running...)}
	for i, s := range p.running {
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
		s.time += d.time / p.cost(n, 1)
	}
	p.pending = append(p.pending, d)
}

func (p *play) report() {
	d := p.pending[0]
	p.pending = p.pending[1:]
	measured := d.time * (1 + p.noise*p.random.Float64())
	if p.random.IntN(200) == 0 {
		measured *= 3
	}
	p.policy.Took(len(d.streams), d.queries, time.Duration(measured*1e6))
	for i, s := range d.streams {
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
