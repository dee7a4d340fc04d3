package engine

import (
	"time"

	"reel.internal/reel/generator/internal/draft"
	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/graphs"
	"reel.internal/reel/protocol"
)

// DraftKind is what guesses tokens ahead of the model, which then checks several in one pass. It changes no token of
// any request.
type DraftKind uint8

// The drafters. A sequence's own history is searched on the device.
const (
	DraftOff    DraftKind = iota
	DraftLookup           // how the text went on where its last tokens occurred before
	DraftGiven            // Request.Prediction, for tests and measurements
	DraftModel            // Options.DraftModel, which may be an EAGLE-3 head
)

// drafterName returns the drafter's name in the protocol.
func (o Options) drafterName() string {
	if o.Draft == DraftModel && o.DraftModel != nil && o.DraftModel.Config.Eagle != nil {
		return protocol.DrafterEagle
	}
	return o.Draft.String()
}

// String returns the name in settings and in the protocol.
func (k DraftKind) String() string {
	return [...]string{DraftOff: protocol.DrafterOff, DraftLookup: protocol.DrafterLookup,
		DraftGiven: protocol.DrafterGiven, DraftModel: protocol.DrafterModel}[k]
}

// MaxDrafts is the largest number of drafts of a sequence in a step: eight rows of a product cost little more than one.
const MaxDrafts = protocol.MaxDrafts

// maxVerify bounds the rows of a verify step: as many as have the decode class's order of sums on a GPU.
const maxVerify = 64

// verifyRows returns the most rows of a verify step; 0 if there are none.
func (o Options) verifyRows() int {
	if o.Draft == DraftOff || o.DraftTokens < 1 {
		return 0
	}
	return min(o.Chunk, maxVerify)
}

// mostQueries returns the most rows of a sequence in a verify step; 0 if there are none.
func (o Options) mostQueries() int { return min(1+o.DraftTokens, o.verifyRows()) }

// drafter returns the drafter of the verify passes.
func (o Options) drafter() model.Drafter {
	if o.Draft == DraftModel && o.verifyRows() == 0 {
		return model.NoDrafter
	}
	return [...]model.Drafter{DraftOff: model.NoDrafter, DraftLookup: model.LookupDrafter,
		DraftGiven: model.GivenDrafter, DraftModel: model.ModelDrafter}[o.Draft]
}

// draftPlanner returns the scheduler's Options.PlanDrafts.
func (e *Engine) draftPlanner() func([]*scheduler.Sequence) {
	switch {
	case e.opts.verifyRows() == 0:
		return nil
	case e.opts.planDrafts != nil:
		return e.opts.planDrafts
	case e.drafts.policy == nil:
		return e.draftAll
	}
	return e.planDrafts
}

// draftAll gives each sequence all drafts that it may have.
func (e *Engine) draftAll(ready []*scheduler.Sequence) {
	for _, q := range ready {
		q.Drafts = min(e.mayDraft(q), e.opts.DraftTokens, q.Owner.(*sequence).request.DraftTokens)
	}
}

// drafts is the engine's part in how many drafts sequences get. Its thread owns it but for policy, which is set before
// Run.
type drafts struct {
	policy *draft.Policy // nil: there are no drafts, or as many as there may be
	// Of the step that is being formed, by sequence:
	sequences  []*draft.Sequence
	may, given []int
}

// newDrafts returns the drafts of an engine. What DraftGiven guesses is always tried: it is there to be measured.
func newDrafts(o Options) (d drafts) {
	if o.verifyRows() > 0 && o.Draft != DraftGiven && !o.DraftAlways {
		d.policy = draft.New(draft.Options{Most: o.DraftTokens, Rows: o.verifyRows(), Lookup: o.Draft == DraftLookup})
	}
	return d
}

// planDrafts lets the policy choose how many drafts the sequences of a decode step get.
func (e *Engine) planDrafts(ready []*scheduler.Sequence) {
	d := &e.drafts
	d.sequences, d.may, d.given = d.sequences[:0], d.may[:0], d.given[:0]
	for _, q := range ready {
		d.sequences = append(d.sequences, &q.Owner.(*sequence).drafting.plan)
		d.may, d.given = append(d.may, e.mayDraft(q)), append(d.given, 0)
	}
	d.policy.Plan(d.sequences, d.may, d.given)
	for i, q := range ready {
		q.Drafts = d.given[i]
	}
}

// timeDrafts tells the policy how long a decode or verify step took, before the step's records are read. A step whose
// graph may still be captured is left out.
func (e *Engine) timeDrafts(step stepInFlight, took time.Duration) {
	b, rolled := step.batch, e.opts.MaxGraphs > 0 && !e.opts.NoRoller
	if e.drafts.policy == nil || b.Prefill || len(b.Served) == 0 || step.plan.Kind == graphs.Eager && rolled {
		return
	}
	e.drafts.policy.Took(len(b.Served), b.Queries, took)
}

// drafting is what became of a sequence's drafts, and what the policy knows about it. Drafts that stand past its end
// are not accepted.
type drafting struct {
	drafted, accepted int
	plan              draft.Sequence
	without           int // steps in a row without drafts
}

// countDrafts notes that of a sequence's drafts in a step the first ones stand.
func (e *Engine) countDrafts(s *sequence, drafts, stand int) {
	e.sched.Accepted(&s.scheduled, drafts, stand)
	s.drafting.drafted += drafts
	if drafts > 0 {
		s.drafting.plan.Result(drafts, stand)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drafted.add(drafts, stand, s.request.Format != nil)
	e.stats.Steps.Tokens += uint64(stand) // beside the one of each sampled sequence
}

// draftCounts counts the verify steps of sequences by their number of drafts, less one: first of those without a
// format, then of those with one, whose drafts are the text that it forces.
type draftCounts [2][MaxDrafts]protocol.DraftCount

// add counts one step of one sequence; without drafts it is a plain one.
func (d *draftCounts) add(drafts, stand int, format bool) {
	if drafts == 0 {
		return
	}
	c := &d[0][drafts-1]
	if format {
		c = &d[1][drafts-1]
	}
	c.Steps++
	c.Drafted += uint64(drafts)
	c.Accepted += uint64(stand)
}

// status returns the drafter and the counts that are not 0.
func (d *draftCounts) status(o Options) protocol.Drafts {
	s := protocol.Drafts{Drafter: o.drafterName()}
	if o.Draft != DraftOff {
		s.Tokens = o.DraftTokens
	}
	for of := range d {
		for i, c := range d[of] {
			if c.Steps > 0 {
				c.Drafts, c.Format = i+1, of == 1
				s.Counts = append(s.Counts, c)
			}
		}
	}
	return s
}

// giveDrafts writes what a request predicts to its slot, from which [kernels.Given] takes drafts. No step in flight
// names the slot.
func (e *Engine) giveDrafts(q *scheduler.Sequence) {
	s, ok := q.Owner.(*sequence)
	if e.opts.Draft != DraftGiven || !ok { // a text that is reread has no request
		return
	}
	slot, _ := q.Slot()
	given := e.memory.Given(slot)
	clear(given)
	copy(given[len(q.Prompt):], s.request.Prediction)
}
