package draft

const (
	// income is the part of its plain steps that a sequence may lose by drafts that fail.
	income = 0.003
	// firstSavings and mostSavings are the steps that it may lose at once, at its start and later.
	firstSavings, mostSavings = 2, 8

	// firstWait and longestWait are the tokens between two probes; each failure doubles the wait.
	firstWait, longestWait = 8, 64
	// hintedPace is how much faster the wait passes while the last tokens have a match.
	hintedPace = 4
)

// probe is the acceptance that a sequence pretends to have when it tries drafts again.
var probe = chance{first: 0.6, rest: 0.8}

// Sequence is what the policy knows about one sequence of the engine. Its zero value never gets drafts.
type Sequence struct {
	policy  *Policy
	most    int
	looks   bool // its drafts are looked up in its history
	history history
	rates   [sights]acceptance
	flying  queue

	credit float64 // plain steps that drafts may still cost
	wait   int     // tokens until the next probe; below 1 it is due
	pause  int     // tokens that the next probe waits if this one fails

	// Of the step that is being planned:
	room    int
	sight   sight
	probing bool
	// The tokens that chains of so many drafts give, the drawn one included.
	expected [Longest + 1]float64
}

// Begin starts a sequence with its prompt's tokens, which stay unchanged until the sequence ends. It gets at most most
// drafts in a step. With 0, nothing is kept of it.
func (s *Sequence) Begin(p *Policy, prompt []int32, most int) {
	most = min(most, p.options.Most)
	s.begin(p, most, func(i sight) chance { return assumedChance(i, p.options.Lookup) })
	if s.most > 0 {
		s.looks, s.history.prompt = p.options.Lookup, prompt
	}
}

// BeginForced starts a sequence whose drafts are what its format nearly forces. It has some in few of its steps.
func (s *Sequence) BeginForced(p *Policy, most int) {
	s.begin(p, min(most, p.options.Most), func(sight) chance { return chance{forced, forced} })
}

// forced is the assumed acceptance of what a format forces: texts can be divided into tokens in more than one way.
const forced = 0.9

func (s *Sequence) begin(p *Policy, most int, assumed func(sight) chance) {
	*s = Sequence{policy: p, most: max(most, 0), history: history{table: s.history.table}}
	if s.most == 0 {
		return
	}
	s.credit, s.wait, s.pause = firstSavings, firstWait, firstWait
	for i := range s.rates {
		s.rates[i] = newAcceptance(assumed(sight(i)))
	}
}

// Token follows a token of the answer, as it is handed to the client.
func (s *Sequence) Token(id int32) {
	if s.most == 0 {
		return
	}
	s.credit = min(s.credit+income, mostSavings)
	s.wait--
	if s.looks {
		s.history.begin()
		s.history.add(id)
		if s.history.sight != unseen {
			s.wait -= hintedPace - 1
		}
	}
}

// Result follows the record of a verify step in which the sequence had drafts: how many, and how many of them stood.
func (s *Sequence) Result(drafted, accepted int) {
	step, ok := s.flying.pop()
	if !ok || drafted < 1 {
		return
	}
	s.rates[step.sight].add(drafted, accepted)
	if step.paid > 0 {
		s.credit += step.paid - (s.policy.costs.worst(step.sequences, step.queries) - 1)
	}
	s.credit = min(s.credit+float64(accepted), mostSavings)
	if accepted > 0 {
		s.wait, s.pause = firstWait, firstWait
	}
}

// expect estimates what chains give the sequence, of which it has room for so many.
func (s *Sequence) expect(room int) {
	s.room, s.probing = min(room, s.most), false
	var c chance
	if s.room > 0 {
		if s.looks {
			s.history.begin()
		}
		s.sight, s.probing = s.history.sight, s.wait < 1
		c = s.rates[s.sight].mean()
	}
	if s.probing {
		c = c.atLeast(probe)
	}
	c.tokens(&s.expected, s.room)
}

// take has the sequence join a step, and returns its drafts. A sequence that cannot pay for the step rides along.
func (s *Sequence) take(step planned, price price) (drafts int) {
	chain := step.queries - 1
	if s.room < 1 {
		return 0
	}
	step.sight = s.sight
	if s.credit >= price.worst-1 {
		step.paid = price.worst - 1
		s.credit -= step.paid
	}
	if s.probing {
		s.wait, s.pause = s.pause, min(2*s.pause, longestWait)
	}
	s.flying.push(step)
	return min(s.room, chain)
}

// planned is a verify step whose result is not known yet.
type planned struct {
	sight              sight
	sequences, queries int
	paid               float64 // what the sequence has paid for it, in plain steps
}

// queue has the verify steps in flight, oldest first. Two are, and one may be in forming.
type queue struct {
	steps [4]planned
	count int
}

func (q *queue) push(s planned) {
	if q.count == len(q.steps) {
		q.pop()
	}
	q.steps[q.count] = s
	q.count++
}

func (q *queue) pop() (s planned, ok bool) {
	if q.count == 0 {
		return planned{}, false
	}
	s = q.steps[0]
	copy(q.steps[:], q.steps[1:q.count])
	q.count--
	return s, true
}
