package scheduler

import "iter"

// A running sequence waits for its next token while others' prompts are computed. Options.Gap bounds that wait, as far
// as steps are as short. Without mixed steps, after a decode step comes at most one prefill step, of as many rows as
// are expected to end, with the decode step after it, within the gap. If decode steps alone take more than half of the
// gap, prompts get as long as they. So a prompt always has half of the time, and nobody waits for a whole chunk of
// somebody else's.
//
// Where there are mixed steps, both are one: every step while prompts wait has a row of each running sequence and as many
// prompt rows as are expected to end within the gap, or within the time of two decode steps, if these take longer. Drafts
// are for decode steps. Where sequences have some, those steps and prefill steps alternate.
//
// Such a step ends sooner than the gap if it has all the prompt rows that a mixed step can have. When several prompts wait,
// the last one's first token may then come late, though tokens could be further apart. So while one is expected late, a
// prefill step comes before each mixed one, of as many rows as the rest of the gap has room for.
//
// In a burst as many sequences wait for their first token as for their next one. Decode steps between would be nearly
// empty, and hold all of them up. So the sequences of a burst wait longer for their second tokens: several whole chunks
// come in a row. It ends with the prompts that were there when it began, and the short ones that came before its first
// step ended. A name of a user takes part with prompts of its own, so nobody else's tokens wait longer. While more short
// prompts are on their way, the first step has only half a chunk, since all that miss it wait for its end.
//
// A prompt that is alone, while nobody else runs or waits, has longer steps, which take less time a token. What is left at
// its end, if it is more than a chunk and less than a long step, is one step too. Whoever comes meanwhile waits for the step
// that runs. So a step is only as long as is expected to end within a few gaps, and when others run, the rest of the
// prompt has chunks like theirs. The prompts of a burst, and those that wait while nobody runs, have long steps if these
// are expected to bring their first tokens sooner: the last ones come sooner, the first ones later, since all that end in a
// step wait for its end. So the mean counts as much as the last.

// LeastBurst is the number of prompts that make a burst.
const LeastBurst = 4

const (
	// burstGaps is the gap in a burst, in gaps.
	burstGaps = 10
	// aloneGaps is how long a step of more than a chunk may take, in gaps.
	aloneGaps = 2
	// lateGaps is the time, in gaps, after which a first token is late. A long prompt's is late only after 1.5 times what
	// mixed steps with its rows alone take, too.
	lateGaps = 7
	// margin is the part of the gap that is left for steps that take longer than expected.
	margin = 1.0 / 16
)

// demand is what sequences wait for.
type demand struct {
	prompts int // ready for prefill
	tokens  int // of these prompts that are not computed
	decodes int // ready for decode
	masked  int // of decodes
	next    int // wait for a token after their first, ready or not
	burst   int // of the burst, that wait for their first token
	// position is that of the first row of the next prefill step.
	position int
	// besideMixed is the time that a prefill step may take before each mixed one, in nanoseconds; 0: there is no such step.
	besideMixed float64
}

// demand counts what running sequences wait for, and begins and ends bursts.
func (s *Scheduler) demand() (d demand) {
	for _, q := range s.running {
		name := q.share.parent
		name.awaitFirst, name.awaitNext, name.burst = 0, 0, 0
	}
	for _, q := range s.running {
		name := q.share.parent
		switch {
		case q.state == prefilling && s.lacksMask(q): // for as long as its mask takes, whatever steps there are
		case q.state == prefilling:
			name.awaitFirst++
			if q.burst {
				name.burst++
				d.burst++
			}
		case q.state == decoding && q.sampled < q.MaxTokens:
			name.awaitNext++
			d.next++
		}
		switch {
		case s.ready(q, prefilling):
			d.prompts++
			d.tokens += len(q.Prompt) - q.prefilled
		case s.ready(q, decoding):
			d.decodes++
			if q.Sampling.Masked {
				d.masked++
			}
		}
	}
	if s.Gap > 0 && d.prompts > 0 {
		d.position = s.nextPrompt().prefilled
		s.follow(d)
		if s.mixes(d) && !s.burst {
			d.besideMixed = s.besideMixed(d)
		}
	}
	return d
}

// besideMixed returns demand.besideMixed: what a mixed step leaves of the time between two tokens, if with mixed steps alone
// some prompt's first token is expected late, and prefill steps take less time a row.
func (s *Scheduler) besideMixed(d demand) float64 {
	_, most := s.MixedRows(d.decodes)
	rows := s.mixedChunk(d, d.decodes, most)
	mixed := s.costs.mix(d.decodes, rows, s.beforeNext(rows, d))
	row := mixed / float64(rows)
	if mixed == 0 || !s.late(row, mixed) {
		return 0
	}
	left := s.longestMixed(d.decodes) - mixed
	rows = fitting(min(s.Chunk, d.tokens), left, func(rows int) float64 { return s.promptCost(rows, d) })
	if cost := s.promptCost(rows, d); cost == 0 || cost > min(left, row*float64(rows)) {
		return 0
	}
	return left
}

// late reports whether some prompt's first token is expected late. A row of a prompt takes `row` nanoseconds, and a step in
// flight `step`.
func (s *Scheduler) late(row, step float64) bool {
	wait := step * float64(s.number-s.completed)
	for _, q := range s.running {
		if q.state != prefilling || s.lacksMask(q) {
			continue
		}
		wait += row * float64(len(q.Prompt)-q.prefilled)
		alone := row * float64(len(q.Prompt)-q.cached)
		if s.elapsed-q.came+wait > max(lateGaps*float64(s.Gap), 1.5*alone) {
			return true
		}
	}
	return false
}

// follow begins or ends a burst, and takes in short prompts that came before its first step ended. A burst goes on while
// every name with sequences that wait for their next tokens also has prompts in the burst.
func (s *Scheduler) follow(d demand) {
	goesOn, begins := d.burst > 0, d.prompts >= LeastBurst
	for _, q := range s.running {
		if name := q.share.parent; name.awaitNext > 0 {
			goesOn = goesOn && name.burst > 0
			begins = begins && name.awaitFirst >= name.awaitNext
		}
	}
	s.burst = goesOn || begins
	if s.burst && !goesOn {
		s.burstFrom = s.number
	}
	for _, q := range s.running {
		switch {
		case !goesOn:
			q.burst = s.burst && q.state == prefilling
		case s.completed <= s.burstFrom && q.state == prefilling && 4*(len(q.Prompt)-q.prefilled) <= s.Chunk:
			q.burst = true
		}
	}
}

// turn reports whether the next step is a prefill step.
func (s *Scheduler) turn(d demand) bool {
	switch {
	case d.prompts == 0:
		return false
	case d.decodes == 0:
		s.since = 0 // whoever waits for a mask gives way
		return true
	case s.mixes(d) && !s.burst && d.besideMixed == 0:
		return s.lastDrafted
	case s.Gap == 0:
		return !s.lastPrefill
	}
	return s.since == 0 || s.since+s.promptCost(min(s.Chunk, d.tokens), d) <= s.budget(d)
}

// budget returns how many nanoseconds prefill steps may take between two decode steps.
func (s *Scheduler) budget(d demand) float64 {
	gap, decode := float64(s.Gap)*(1-margin), s.costs.decode(d.next)
	if d.besideMixed > 0 {
		return d.besideMixed
	}
	if s.burst {
		gap *= burstGaps
	}
	return max(gap-decode, decode)
}

// promptCost returns the time expected of the next prefill step with so many rows, if all are of its first prompt.
func (s *Scheduler) promptCost(rows int, d demand) float64 {
	return s.costs.prompt(rows, s.beforeNext(rows, d))
}

// beforeNext returns how many positions the rows of the next step with prompts have before them, if all are of its first
// prompt.
func (s *Scheduler) beforeNext(rows int, d demand) int { return rows*d.position + rows*rows/2 }

// chunk returns how many rows the next prefill step may have. If others wait for their next tokens, it is the most
// that the budget has room for. What is left of the prompts is then divided evenly among steps, so that no small one
// remains, unless the step is long, or a burst's first tokens are expected sooner without.
func (s *Scheduler) chunk(d demand) int {
	switch {
	case s.alone(d):
		return s.longChunk(d)
	case s.Gap == 0:
		return s.Chunk
	case s.beginsBurst(d):
		return min(s.Chunk, grain*grains(s.Chunk/2))
	case d.next == 0:
		return s.burstChunk(d, aloneGaps*float64(s.Gap))
	}
	rows, budget := s.Chunk, s.budget(d)-s.since
	if s.burst {
		if long := s.burstChunk(d, min(aloneGaps*float64(s.Gap), budget)); long > s.Chunk {
			return long
		}
	}
	rows = fitting(rows, budget, func(rows int) float64 { return s.promptCost(rows, d) })
	even := evenly(d.tokens, rows)
	if s.burst && s.firstTokens(rows, d) < s.firstTokens(even, d) {
		return rows // times have stairs: 336 rows of 7B take as long as 416
	}
	return even
}

// beginsBurst reports whether the next step is the first one of a burst of prompts of which half a chunk holds four and
// more, and others of them may be on their way.
func (s *Scheduler) beginsBurst(d demand) bool {
	return s.burst && s.number == s.completed && 8*d.tokens <= s.Chunk*d.prompts && s.Coming != nil && s.Coming()
}

// mixedChunk returns how many prompt rows a mixed step of n sequences may have, most at most, divided as in chunk.
func (s *Scheduler) mixedChunk(d demand, n, most int) int {
	if s.Gap == 0 {
		return most
	}
	return evenly(d.tokens, fitting(most, s.longestMixed(n), func(rows int) float64 {
		return s.costs.mix(n, rows, s.beforeNext(rows, d))
	}))
}

// longestMixed returns how many nanoseconds a mixed step of n sequences may take, with the prefill step before it.
func (s *Scheduler) longestMixed(n int) float64 {
	return max(float64(s.Gap)*(1-margin), 2*s.costs.decode(n))
}

// fitting returns rows if their cost is at most longest, otherwise the largest smaller number of whole grains of which that
// is so, or one grain.
func fitting(rows int, longest float64, cost func(rows int) float64) int {
	for ; rows > grain && cost(rows) > longest; rows = grain * (grains(rows) - 1) {
	}
	return rows
}

// evenly returns the rows of the next step if so many tokens are divided among as few steps as there can be, of whole
// grains and a number of rows at most.
func evenly(tokens, rows int) int {
	steps := (tokens + rows - 1) / rows
	return min(rows, grain*grains((tokens+steps-1)/steps))
}

// burstChunk returns how many rows a step has while many prompts wait: the number of a long step that takes at most so
// many nanoseconds, if first tokens are expected sooner with it; otherwise Chunk.
func (s *Scheduler) burstChunk(d demand, most float64) int {
	best, least := s.Chunk, s.firstTokens(s.Chunk, d)
	for rows := range s.longSteps(d, most) {
		if ends := rows * d.prompts / d.tokens; ends > min(s.MaxBatch, MaxPrompts) {
			continue // prompts so short do not fill it, since no more may end in a step
		}
		if t := s.firstTokens(rows, d); t < least {
			best, least = rows, t
		}
	}
	return best
}

// firstTokens returns when the prompts' first tokens are expected with steps of so many rows: the mean and the last,
// added. What does not fill such a step has steps of half the rows, and so on. All prompts count as equally long.
func (s *Scheduler) firstTokens(rows int, d demand) float64 {
	mean, now, left := 0.0, 0.0, d.tokens
	for left > 0 {
		n := min(rows, left)
		steps, cost := float64(left/n), s.costs.prompt(n, 0)
		mean += steps * float64(n) / float64(d.tokens) * (now + cost*(steps+1)/2)
		now += steps * cost
		left %= n
		rows = max(rows/2, s.Chunk)
	}
	return mean + now
}

// alone reports whether one sequence, with more of its prompt than a chunk, is all that there is.
func (s *Scheduler) alone(d demand) bool {
	return d.tokens > s.Chunk && s.Running() == 1 && s.root.queued == 0
}

// longChunk returns how many rows the next step of a prompt that is alone has. It is the longest long step that ends in
// time. If less than a long step is left, it is all of that. Otherwise it is Chunk. A small last step takes more time a row:
// so before one, the shortest long step becomes shorter and leaves a whole chunk, if the prompt is expected to end sooner.
func (s *Scheduler) longChunk(d demand) int {
	most := aloneGaps * float64(s.Gap)
	for rows := range s.longSteps(d, most) {
		if rows/2 > s.Chunk {
			return rows
		}
		before := pagesFor(d.tokens-s.Chunk, s.PageTokens) * s.PageTokens // then Chunk is left
		if first := min(rows, max(s.Chunk, before)); s.inTwo(d.tokens, first) < s.inTwo(d.tokens, rows) {
			return first
		}
		return rows
	}
	if d.tokens <= s.LongChunk && s.endsWithin(d.tokens, d, most) {
		return d.tokens
	}
	return s.Chunk
}

// inTwo returns how long a prompt of so many tokens is expected to take in two steps, of which one has `first` rows.
func (s *Scheduler) inTwo(tokens, first int) float64 {
	return s.costs.prompt(first, 0) + s.costs.prompt(tokens-first, 0)
}

// longSteps yields the rows of long steps, which are LongChunk, a half of it, a quarter and so on, of which the kernels
// have whole tiles. The prompts fill each, and it is expected to take at most so many nanoseconds; with a gap, none is
// tried before that can be told.
func (s *Scheduler) longSteps(d demand, most float64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for rows := s.LongChunk; rows > s.Chunk; rows /= 2 {
			if rows <= d.tokens && s.endsWithin(rows, d, most) && !yield(rows) {
				return
			}
		}
	}
}

// endsWithin reports whether the next step, if it has so many rows, is expected to take at most `most` nanoseconds. Without
// a gap the answer is always yes.
func (s *Scheduler) endsWithin(rows int, d demand, most float64) bool {
	cost := s.promptCost(rows, d)
	return s.Gap == 0 || cost > 0 && cost <= most
}

// note counts the time expected of a step that was formed: what prefill steps take since the last step in which running
// sequences had rows.
func (s *Scheduler) note(b *Batch, d demand) {
	s.lastPrefill, s.lastDrafted = b.Prefill && b.Generated == 0, b.Queries > 1
	if !s.lastPrefill || d.next == 0 {
		s.since = 0
		return
	}
	s.since += max(1, s.costs.prompt(len(b.Step.Rows), before(&b.Step)))
}
