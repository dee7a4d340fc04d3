package scheduler

import "reel.internal/reel/kernels"

// A decode step becomes a verify step if one of its sequences gets drafts: guesses of the tokens after its last one,
// which the device makes, or of a masked sequence those that came with its masks. Then each sequence has a group of
// rows of one size, the last token and its drafts, filled up with padding. How many drafts stand is known only on the
// device until the step's records are read: until then q.length and q.sampled count all rows of the step, and are upper
// bounds. So nothing that depends on them lacks room: a sequence gets no row past its last token, and none for which it
// has no page.

// mayDraft returns how many drafts q's next rows may have: none is past the last token that q may have, and each has a
// page. The drafts of a masked sequence came with its masks, which depend on them.
func (s *Scheduler) mayDraft(q *Sequence) int {
	most := max(0, min(q.MaxTokens-q.sampled, len(q.pages)*s.PageTokens-q.length)-1)
	if q.Sampling.Masked {
		most = min(most, len(q.drafts))
	}
	return most
}

// planDrafts sets how many drafts each sequence of a decode step gets, and returns the rows of a sequence: 1, or the
// size of the groups.
func (s *Scheduler) planDrafts(ready []*Sequence) (queries int) {
	queries = 1
	if s.PlanDrafts == nil {
		return queries
	}
	most := s.MaxVerify/max(1, len(ready)) - 1
	for _, q := range ready {
		q.MayDraft, q.Drafts = max(0, min(s.mayDraft(q), most)), 0
	}
	s.PlanDrafts(ready)
	for _, q := range ready {
		q.Drafts = max(0, min(q.Drafts, q.MayDraft))
		queries = max(queries, 1+q.Drafts)
	}
	return queries
}

// verifyRows adds q's drafts after its first row, and padding up to b.Queries rows. All rows are sampled: those without
// a sample would have to come last.
func (s *Scheduler) verifyRows(b *Batch, q *Sequence) {
	for i := range b.Queries - 1 {
		if i < q.Drafts {
			s.row(b, q, kernels.FromDevice, q.draft(i))
			q.sampled++
		} else {
			b.Step.Rows = append(b.Step.Rows, kernels.Row{Slot: kernels.NoSlot})
		}
		b.Step.Samples = append(b.Step.Samples, int32(len(b.Step.Rows)-1))
	}
	b.Drafts = append(b.Drafts, q.Drafts)
}

// draft returns the token of q's i-th draft, as a row has it.
func (q *Sequence) draft(i int) int32 {
	if q.Sampling.Masked {
		return q.drafts[i]
	}
	return kernels.FromDraft
}

// Accepted notes that of a verify step's drafts of q only so many stand. The rows of the others are as if they had
// never been formed; later steps compute their positions anew.
func (s *Scheduler) Accepted(q *Sequence, drafts, stand int) {
	q.length -= drafts - stand
	q.sampled -= drafts - stand
}
