package scheduler

import "reel.internal/reel/kernels"

// Next forms the next step. It returns nil if no sequence has work, while a step is in flight that rereads, and while
// any step is in flight if only masked sequences have work, past their prompts. The batch is valid for InFlight-1
// further calls of Next and Idle.
func (s *Scheduler) Next() *Batch {
	if s.rereading != nil {
		return nil
	}
	s.rounds++
	b := s.blankBatch()
	s.grow()
	s.admit()
	d := s.demand()
	if d.prompts == 0 && d.decodes == d.masked && s.number > s.completed {
		return nil // with two steps in flight they would stay two half batches
	}
	if s.turn(d) {
		s.prefill(b, s.chunk(d), min(s.MaxBatch, MaxPrompts))
	}
	if len(b.Step.Rows) == 0 && d.decodes > 0 { // the prompts may all wait for pages
		s.decode(b)
		if s.mixes(d) {
			s.mix(b, d)
		}
	}
	if len(b.Step.Rows) == 0 {
		return nil
	}
	s.Rebuild(b)
	s.note(b, d)
	s.number++
	return b
}

// Idle forms a step without sequences: all of its rows are padding. The device runs it like any other step.
func (s *Scheduler) Idle() *Batch {
	b := s.blankBatch()
	s.Rebuild(b)
	s.number++
	return b
}

// blankBatch returns an empty batch with the next step's number. It reuses an old batch's memory.
func (s *Scheduler) blankBatch() *Batch {
	b := &s.batches[s.number%uint64(len(s.batches))]
	*b = Batch{Step: kernels.Step{Number: s.number, Rows: b.Step.Rows[:0], Samples: b.Step.Samples[:0],
		Inits: b.Step.Inits[:0], Pages: b.Step.Pages[:0]},
		Queries: 1, Drafts: b.Drafts[:0],
		Sampled: b.Sampled[:0], Masked: b.Masked[:0], Served: b.Served[:0], Restored: b.Restored[:0], entries: b.entries[:0]}
	return b
}

// admit gives slots and pages to sequences that come back, then to waiting ones in the order of their shares.
func (s *Scheduler) admit() {
	for q := s.nextReturn(); q != nil; q = s.nextReturn() {
		s.comeBack(q)
	}
	for q := s.nextJoin(); q != nil; q = s.nextJoin() {
		if len(s.out) > 0 {
			s.out[0].passed++
		}
		s.join(q)
		s.joined = append(s.joined, q)
	}
}

// join gives q a slot and its pages; nextJoin has checked that they are free.
func (s *Scheduler) join(q *Sequence) {
	s.dequeue(q)
	s.takeSlot(q)
	s.takePages(q)
	q.state = prefilling
}

// takeSlot gives q a free slot and lets it run.
func (s *Scheduler) takeSlot(q *Sequence) {
	s.popSlot(q)
	s.addSlots(q, 1)
	s.running = append(s.running, q)
	for a := q.share; a != nil; a = a.parent {
		a.running++
	}
}

// popSlot gives q a free slot in a new generation.
func (s *Scheduler) popSlot(q *Sequence) {
	q.slot = s.freeSlots[len(s.freeSlots)-1]
	s.freeSlots = s.freeSlots[:len(s.freeSlots)-1]
	s.generations[q.slot]++
	q.generation = s.generations[q.slot]
}

// prefill adds prompt tokens to the step, in the order of the shares, until it has so many rows. At most `sampled` of them
// are sampled; the rows of running sequences count.
func (s *Scheduler) prefill(b *Batch, rows, sampled int) {
	begin := len(b.Step.Rows)
	for q := s.nextPrompt(); q != nil && len(b.Step.Rows) < rows && len(b.Sampled) < sampled; q = s.nextPrompt() {
		if !s.findMore(q) || s.lacksMask(q) || !s.prepareSlot(b, q) {
			q.heldBack = s.rounds
			continue
		}
		n := rows - len(b.Step.Rows)
		if q.Sampling.Masked && !q.allowed { // the last row waits for the mask
			n = min(n, len(q.Prompt)-q.prefilled-1)
		}
		s.addPrompt(b, q, n)
	}
	b.Prefill = len(b.Step.Rows) > begin
}

// mostMixed is MixedSamples of this scheduler.
func (s *Scheduler) mostMixed() int { return MixedSamples(s.MaxBatch + s.Reserve) }

// mixes reports whether the next decode step may be a mixed one: prompts wait, and there is such a step in which one of
// them may end.
func (s *Scheduler) mixes(d demand) bool {
	if s.MixedRows == nil || d.prompts == 0 || d.decodes == 0 || d.decodes >= s.mostMixed() {
		return false
	}
	rows, _ := s.MixedRows(d.decodes)
	return rows > 0
}

// mix makes a decode step without drafts a mixed one: padding up to the generated rows of such a pass, then prompt
// tokens. If no prompt can go on, it stays what it is.
func (s *Scheduler) mix(b *Batch, d demand) {
	n := len(b.Step.Rows)
	if n == 0 || b.Queries > 1 {
		return
	}
	rows, most := s.MixedRows(n)
	if rows == 0 {
		return
	}
	for len(b.Step.Rows) < rows {
		b.Step.Rows = append(b.Step.Rows, kernels.Row{Slot: kernels.NoSlot})
	}
	s.prefill(b, rows+s.mixedChunk(d, n, most), s.mostMixed())
	if b.Generated = rows; !b.Prefill {
		b.Step.Rows, b.Generated = b.Step.Rows[:n], 0
	}
}

// prepareSlot adds the restore or the init that q's slot needs before its next row. It returns false if the step
// has no room for the restore.
func (s *Scheduler) prepareSlot(b *Batch, q *Sequence) bool {
	switch {
	case q.restore:
		r := Restored{q: q, tokens: q.length, pageTokens: s.PageTokens}
		words := kernels.MaxStateWords(r.pages(), r.tokens)
		if s.RestoreWords > 0 && len(b.Restored) > 0 && b.restoreWords+words > s.RestoreWords {
			return false
		}
		b.restoreWords += words
		b.Restored = append(b.Restored, r)
		q.restore = false
	case q.length == 0:
		b.Step.Inits = append(b.Step.Inits, q.init())
	}
	return true
}

// init returns the parameters of q's slot.
func (q *Sequence) init() kernels.Init {
	return kernels.Init{Slot: q.slot, Generation: q.generation, Prompt: int32(len(q.Prompt)), Sampling: q.Sampling}
}

// addPrompt adds q's next prompt tokens, n at most. A chunk of a prompt that leaves pages ends with a page, if it
// can: then another prompt can go on from there.
func (s *Scheduler) addPrompt(b *Batch, q *Sequence, n int) {
	end := min(q.prefilled+n, len(q.Prompt))
	if whole := end / s.PageTokens * s.PageTokens; end < len(q.Prompt) && whole > q.prefilled && q.chained() {
		end, q.heldBack = whole, s.rounds
	}
	from := q.prefilled
	for _, token := range q.Prompt[from:end] {
		s.row(b, q, int32(q.length), token)
		q.prefilled++
		s.leavePage(q)
	}
	q.share.serve(end - from)
	b.Served = append(b.Served, q)
	if q.prefilled == len(q.Prompt) {
		s.sample(b, q)
		q.state = decoding
		q.endPrompt()
	}
}

// decode adds a row for every sequence that is past its prompt, with the token that the device sampled last, and rows
// for its drafts.
func (s *Scheduler) decode(b *Batch) {
	for _, q := range s.running {
		if s.ready(q, decoding) && (!q.restore || s.prepareSlot(b, q)) {
			b.Served = append(b.Served, q)
		}
	}
	b.Queries = s.planDrafts(b.Served)
	for _, q := range b.Served {
		s.row(b, q, kernels.FromDevice, kernels.FromDevice)
		q.share.serve(1)
		s.sample(b, q)
		if b.Queries > 1 {
			s.verifyRows(b, q)
		}
	}
}

// row adds a row for q's next token, and a block table entry if the row is the first of its page.
func (s *Scheduler) row(b *Batch, q *Sequence, position, token int32) {
	if index := q.length / s.PageTokens; index == q.published {
		b.entries = append(b.entries, entry{q, int32(index)})
		q.published++
	}
	b.Step.Rows = append(b.Step.Rows, kernels.Row{Slot: q.slot, Position: position, Token: token})
	q.length++
	q.lastStep = s.number
}

// sample makes the row that was added last a sampled row.
func (s *Scheduler) sample(b *Batch, q *Sequence) {
	b.Step.Samples = append(b.Step.Samples, int32(len(b.Step.Rows)-1))
	b.Sampled = append(b.Sampled, q)
	q.sampled++
	if q.Sampling.Masked {
		b.Masked = append(b.Masked, q)
		q.allowed = false
	}
}
