// Package draft decides how many drafts each sequence of a decode step gets, and whether the step becomes a verify step
// at all. It is plain bookkeeping without device, clock or tokens of its own: whatever it decides, the tokens of a
// request are the same, and only their speed is at stake.
//
// A [Policy] compares what drafts give with what they take:
//
//   - give: a [Sequence] knows which part of its drafts stood lately, and whether its last tokens occurred before, so
//     that a drafter which looks them up has something to copy. The results known are two steps old. One with a format
//     has drafts only where that forces the text.
//   - take: [Policy.Took] measures how much longer a verify step is than a plain one. All sequences of a step have as
//     many rows as the one with the most drafts, so the longest chain decides the cost for all.
//
// A step gets drafts if the expected tokens a millisecond of the whole step rise, and if no sequence of it loses more
// than 5% by them. A sequence in which drafts fail tries them in ever longer intervals. What it may lose by that is
// counted: 0.3% of its steps, and two steps more.
package draft

import (
	"slices"
	"time"
)

// Longest is the number of drafts that one sequence can have in a step.
const Longest = 7

// patience bounds how much a sequence may lose for others: 5%, with an allowance for what is not measured exactly.
const patience = 1.045

// Options are the bounds of a policy.
type Options struct {
	Most   int  // drafts of one sequence in a step at most, 0 to Longest
	Rows   int  // rows of a verify step at most, padding included
	Lookup bool // the drafter copies from the sequence's own history, so that Sequence.Token sees what it would find
}

// Policy decides the drafts of one engine's steps. It is used by one goroutine.
type Policy struct {
	options Options
	costs   costs
}

// New returns a policy that has measured nothing yet.
func New(o Options) *Policy {
	o.Most = min(max(o.Most, 0), Longest)
	return &Policy{options: o, costs: newCosts(o.Rows / 2)}
}

// Plan decides the drafts of a step that is being formed, of sequences that get a row each. It writes the number of
// drafts of seqs[i] to drafts[i], at most may[i], which is the room that the sequence has left, or 0 where drafts are
// impossible. It returns the largest of them: with 0 the step is a plain decode step, otherwise a verify step of
// len(seqs) groups with one row more than that. After it, [Sequence.Result] is due once for each drafts[i] > 0.
func (p *Policy) Plan(seqs []*Sequence, may, drafts []int) (most int) {
	longest := p.longest(seqs, may)
	for i, s := range seqs {
		drafts[i] = 0
		s.expect(min(may[i], longest))
	}
	chain := p.choose(seqs, longest)
	n := len(seqs)
	if chain == 0 || !p.costs.trusts(n, chain+1) && !p.costs.try(n, chain+1) {
		return 0
	}
	price := p.costs.price(n, chain+1)
	for i, s := range seqs {
		drafts[i] = s.take(planned{sequences: n, queries: chain + 1}, price)
		most = max(most, drafts[i])
	}
	return most
}

// longest returns the length of the longest chain that bounds allow the step.
func (p *Policy) longest(seqs []*Sequence, may []int) int {
	n := len(seqs)
	if n == 0 {
		return 0
	}
	room := 0
	for i, s := range seqs {
		room = max(room, min(may[i], s.most))
	}
	return max(0, min(room, p.options.Most, p.options.Rows/n-1))
}

// choose returns the length of the chain with the most tokens for its time, or 0 if none is better than a plain step
// for all.
func (p *Policy) choose(seqs []*Sequence, longest int) (chain int) {
	n, best := len(seqs), float64(len(seqs))
	idle := slices.ContainsFunc(seqs, func(s *Sequence) bool { return s.room < 1 })
	for k := 1; k <= longest; k++ {
		price := p.costs.price(n, k+1)
		if idle && p.costs.careful(n, k+1) > patience {
			continue
		}
		if tokens := together(seqs, k, price); tokens > best*price.expected {
			best, chain = tokens/price.expected, k
		}
	}
	return chain
}

// together returns the tokens that a step gives its sequences, or 0 if one of them would lose too much. One that cannot
// pay for a failure asks for nothing.
func together(seqs []*Sequence, k int, price price) (tokens float64) {
	for _, s := range seqs {
		expected := s.expected[k]
		if expected*patience < price.expected {
			return 0
		}
		if s.credit < price.worst-1 {
			expected = 1
		}
		tokens += expected
	}
	return tokens
}

// Took records that a step of so many sequences with queries rows each, 1 in a plain decode step, has kept the device
// for d: from its launch or the end of the step before it, whichever was later, to its own end. The padding of the
// step's graph is not counted, so that costs are those of the steps that Plan chooses among. Took comes before the
// results of its step. Steps that ran without a graph are left out: the graph to come is faster.
func (p *Policy) Took(sequences, queries int, d time.Duration) {
	p.costs.took(sequences, queries, float64(d))
}
