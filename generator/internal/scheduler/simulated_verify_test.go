package scheduler

import (
	"slices"

	"reel.internal/reel/kernels"
)

// planDrafts gives sequences random numbers of drafts, and sometimes more than they may have.
func (m *simulation) planDrafts(ready []*Sequence) {
	if m.pick(4) == 0 {
		return
	}
	for _, q := range ready {
		q.Drafts = m.pick(8) - m.pick(3)
	}
}

// allow ends the making of one mask, which comes with drafts that are right or wrong.
func (m *simulation) allow() bool {
	if len(m.masks) == 0 {
		return false
	}
	i := m.pick(len(m.masks))
	q := m.masks[i]
	m.masks = slices.Delete(m.masks, i, i+1)
	want := m.texts[q]
	want.masks, want.drafts = want.given+1, nil
	for i := len(q.Prompt) + want.given; m.s.MaxVerify > 0 && m.pick(6) > 0; i++ {
		draft := int32(-9) // wrong
		if m.pick(4) > 0 && i < len(want.tokens) {
			draft = want.tokens[i]
		}
		want.drafts = append(want.drafts, draft)
	}
	q.Allow(want.drafts)
	return true
}

// mayWrite reports whether the row at a position of the slot's sequence has a page of that sequence, and is not past
// its last token.
func (m *simulation) mayWrite(step *simulatedStep, slot int32, position int) bool {
	q, index := step.owners[slot], position/m.s.PageTokens
	page, ok := m.slots[slot].table[int32(index)]
	switch {
	case position >= len(q.Prompt)+max(0, q.MaxTokens-1):
		m.fault("step %d: a row at position %d of a sequence of %d + %d tokens", step.Number, position, len(q.Prompt),
			q.MaxTokens)
	case !ok || index >= len(step.pages[slot]) || step.pages[slot][index] != page:
		m.fault("step %d, position %d: the row goes to page %d (%v), the sequence has %v", step.Number, position, page,
			ok, step.pages[slot])
	default:
		return true
	}
	return false
}

// verify runs a verify step: of each sequence a row for its last token, and rows for guesses of the next ones, which
// are right or wrong at random, or those of a masked sequence. What follows a wrong one is garbage.
func (m *simulation) verify(step *simulatedStep) {
	if len(step.Rows) != step.queries*len(step.sampled) || len(step.Rows) > m.s.MaxVerify ||
		len(step.Samples) != len(step.Rows) || len(step.drafts) != len(step.sampled) {
		m.fault("step %d: %d rows, %d samples, %d numbers of drafts for %d sequences with %d rows each, %d at most",
			step.Number, len(step.Rows), len(step.Samples), len(step.drafts), len(step.sampled), step.queries,
			m.s.MaxVerify)
		return
	}
	for i, q := range step.sampled {
		step.counts = append(step.counts, m.group(step, i*step.queries, q, step.drafts[i]))
	}
}

// group runs the rows of a sequence in a verify step, from the first one on, and returns how many results they have.
func (m *simulation) group(step *simulatedStep, first int, q *Sequence, drafts int) (count int) {
	slot, want := &m.slots[q.slot], m.texts[q]
	if step.Rows[first].Token != kernels.FromDevice || step.owners[step.Rows[first].Slot] != q {
		m.fault("step %d: a group of rows begins with %+v", step.Number, step.Rows[first])
		return 1
	}
	m.row(step, step.Rows[first])
	mask := simulatedMask{q, slot.length - len(q.Prompt)}
	if q.Sampling.Masked && (slot.mask != mask || drafts > len(want.drafts)) {
		m.fault("step %d samples token %d with %d drafts and the mask of %+v", step.Number, mask.index, drafts,
			slot.mask)
	}
	begin := slot.length
	slot.token, count = sampledAfter(m.value(slot, begin-1)), 1
	for i, row := range step.Rows[first+1:][:step.queries-1] {
		if i >= drafts {
			if row.Slot != kernels.NoSlot {
				m.fault("step %d: %+v is no padding", step.Number, row)
			}
			continue
		}
		draft, right := int32(kernels.FromDraft), m.pick(3) > 0 && begin+i < len(want.values)
		if q.Sampling.Masked {
			draft = want.drafts[i]
			right = begin+i < len(want.values) && draft == want.tokens[begin+i]
		}
		if row.Token != draft || row.Position != kernels.FromDevice || row.Slot != q.slot {
			m.fault("step %d: %+v is no draft", step.Number, row)
		}
		if count == i+1 && right {
			slot.length, slot.token = begin+i, want.tokens[begin+i]
			m.row(step, row)
			slot.token, count = sampledAfter(m.value(slot, begin+i)), count+1
		} else if m.mayWrite(step, q.slot, begin+i) {
			slot.history[begin+i] = -1
			page := slot.table[int32((begin+i)/m.s.PageTokens)]
			m.page[page][(begin+i)%m.s.PageTokens], step.wrote[page] = unwritten, q
		}
	}
	slot.length = begin + count - 1
	m.drafted, m.stood = m.drafted+drafts, m.stood+count-1
	if q.Sampling.Masked {
		m.maskedStood += count - 1
	}
	return count
}

// withoutLength notes refused drafts as not sampled, but leaves them in the sequence's length.
func withoutLength(q *Sequence, drafts, stand int) { q.sampled -= drafts - stand }

// withoutSampled notes refused drafts in the sequence's length alone.
func withoutSampled(q *Sequence, drafts, stand int) { q.length -= drafts - stand }

// withBound gives sequences as many drafts as bound returns.
func (m *simulation) withBound(bound func(q *Sequence) int) {
	if m.s.MaxVerify == 0 {
		return
	}
	m.s.PlanDrafts = func(ready []*Sequence) {
		for _, q := range ready {
			q.MayDraft = max(0, min(bound(q), m.s.MaxVerify/len(ready)-1))
		}
		m.planDrafts(ready)
	}
}

// withDraftsPastTheEnd gives sequences drafts past their last tokens, as long as they have pages.
func withDraftsPastTheEnd(m *simulation) {
	m.withBound(func(q *Sequence) int {
		if q.Sampling.Masked {
			return m.s.mayDraft(q)
		}
		return len(q.pages)*m.s.PageTokens - q.length - 1
	})
}

// withDraftsWithoutPages gives sequences drafts for which they have no pages.
func withDraftsWithoutPages(m *simulation) {
	m.withBound(func(q *Sequence) int {
		if q.Sampling.Masked {
			return m.s.mayDraft(q)
		}
		return q.MaxTokens - q.sampled - 1
	})
}

// withMaskedDrafts gives masked sequences more drafts than came with their masks.
func withMaskedDrafts(m *simulation) {
	m.withBound(func(q *Sequence) int {
		return min(q.MaxTokens-q.sampled, len(q.pages)*m.s.PageTokens-q.length) - 1
	})
}
