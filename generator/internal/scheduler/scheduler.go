// Package scheduler decides which waiting sequences join, which rows the next step has, and which KV pages they
// use. It does bookkeeping only and makes no call on a device.
//
// step.go forms steps, verify.go those with drafts. pace.go decides how much of others' prompts comes between two
// tokens, and costs.go tells how long steps take. share.go orders users, names and connections fairly. reserve.go
// decides if a sequence fits. prefix.go finds pages that other prompts have left, and files.go those in files. reread.go
// computes some while nobody waits. tiers.go copies pages to host memory and back, and moves sequences out. relocate.go
// moves pages on the device.
package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"reel.internal/reel/generator/internal/kv"
	"reel.internal/reel/kernels"
)

// ErrFull reports a full queue. The sequence was not taken.
var ErrFull = errors.New("scheduler: queue is full")

// MaxPrompts is the most prompts that end in one prefill step. A prefill pass has as many rows that are sampled, padding
// included, so more would cost the passes of single prompts.
const MaxPrompts = 64

// MixedSamples returns how many rows of a mixed step are sampled at most, with so many slots. Sampled are the rows of running
// sequences, and the last rows of prompts.
func MixedSamples(slots int) int { return min(slots, MaxPrompts) }

// Options are the limits of a Scheduler.
type Options struct {
	MaxBatch   int // slots for everybody; one user never holds more
	Reserve    int // slots past MaxBatch, each for a user that holds none
	MaxQueue   int // sequences that wait
	Chunk      int // prompt tokens of one prefill step
	LongChunk  int // the same of long steps (pace.go); at most Chunk: there are none
	Context    int // tokens of a sequence at most
	PageTokens int // tokens a KV page holds
	Pages      int // KV pages; without those of the reserve, at least enough for the longest sequence
	// ReservePages is the number of pages kept with each slot of the reserve.
	ReservePages int
	// RestoreWords bounds the words of all restores of a step; 0 is no bound. One sequence always fits.
	RestoreWords int
	// PlanDrafts sets Drafts, MayDraft at most, of the sequences of a decode step that is being formed; nil: there are
	// no drafts. MaxVerify bounds the rows of a verify step, padding included.
	PlanDrafts func([]*Sequence)
	MaxVerify  int
	// Gap bounds, as far as steps are as short, the time between two tokens of a sequence while others' prompts are
	// computed (pace.go); 0: mixed steps have as many prompt rows as they can, or prefill steps have whole chunks and
	// alternate with decode steps.
	Gap time.Duration
	// MixedRows returns the generated rows, padding included, of a mixed step with the next tokens of n sequences, and the
	// most prompt rows beside them; 0: there is none. n is 1 to the number of slots. nil: there are no mixed steps.
	MixedRows func(n int) (rows, most int)
	// Coming reports whether more prompts of a burst may be on their way, before its first step; nil: never. It counts
	// with a Gap alone.
	Coming func() bool
	// FirstStep is the number of the first step.
	FirstStep uint64
	// InFlight is how many steps may be formed before the first of them has completed.
	InFlight int
}

// Batch is the next step and the sequences in it.
type Batch struct {
	Prefill bool // there are prompt tokens
	Step    kernels.Step
	// Generated is the number of rows before those of prompts in a mixed step: one of each sequence that is past its
	// prompt, then padding. In other steps it is 0.
	Generated int
	// Queries is 1, or in a verify step the rows of each sequence, padding included: the i-th one's begin at row
	// i*Queries.
	Queries int
	// Sampled holds the sequence of each sampled row, in the order of Step.Samples; in a verify step, of each group.
	Sampled []*Sequence
	// Drafts has the number of drafts of each of Sampled in a verify step.
	Drafts []int
	// Masked holds those of Sampled whose masks the caller writes to their slots before it enqueues the step. No other
	// enqueued step samples in these slots.
	Masked []*Sequence
	// Served holds every sequence that has a row in the step.
	Served []*Sequence
	// Restored holds the slots that are restored before the step: their sequences found pages of their prompts.
	Restored []Restored
	// Reread is the sequence of a step that [Scheduler.Reread] formed, which has no others; nil in other steps.
	Reread *Sequence

	restoreWords int
	entries      []entry // the block table entries in Step.Pages
	epoch        uint64  // the scheduler's, when Step.Pages was made
}

// Prompts returns the number of prompt tokens in the step.
func (b *Batch) Prompts() int {
	if !b.Prefill {
		return 0
	}
	return len(b.Step.Rows) - b.Generated
}

// entry is one entry of a sequence's block table.
type entry struct {
	q     *Sequence
	index int32
}

// Scheduler forms steps. It is not safe for concurrent use.
//
// Users have equal shares of slots and prompt tokens, and so have a user's names and a name's connections (share.go).
//
// Without a host tier a sequence joins when a slot is free, with pages for its prompt and all the tokens it may ask
// for, and the reserve for further users stays whole (reserve.go). So a running sequence never lacks a page and none
// is preempted. With a tier it needs fewer pages to join, and may have to move out (tiers.go).
//
// A step may be formed before the records of the step before it are known: its decode rows take their tokens from
// the device. If the sequence ended meanwhile, its row writes to pages that the sequence still holds.
//
// A masked sequence is sampled by one step in flight, since the mask of a token depends on the token before it. So its
// slot's masks are written only while no enqueued step reads them.
//
// Prompts are prefilled in chunks, in mixed steps or in prefill steps that alternate with decode steps, so that a long
// prompt does not hold up others' tokens. What steps took lately decides how large a chunk is (pace.go, costs.go).
type Scheduler struct {
	Options
	pages        *kv.Pool
	holders      []*share // by page: the user whose sequences alone hold it; nil for other pages
	freeSlots    []int32
	generations  []int32 // by slot
	root         share   // of all users
	oldShares    []*share
	arrivals     uint64
	slotUsers    int         // users that hold a slot
	withinShares int         // pages that users hold within their shares of the reserve
	running      []*Sequence // in the order in which they joined
	leaving      []*Sequence
	rereading    *Sequence   // of the step in flight that rereads, or nil
	moving       []*Sequence // on their way out
	out          []*Sequence // moved out, in the order in which they did
	transfers    []Transfer  // to be begun
	wanted       int         // pages that a sequence waits for, to be ready
	movedOut     uint64      // sequences, so far
	movedIn      uint64
	lacksPlaces  bool        // a sequence that moves out found too few places
	writes       bool        // pages are written to files
	unwritten    []*kv.Node  // in the order in which they were left
	written      int32       // the page that is being written; 0: none
	writtenOf    *share      // the user for whom that page counts again after the write, or nil
	joined       []*Sequence // since Joined was called last
	rounds       uint64      // calls of Next
	number       uint64      // of the next step
	completed    uint64      // all steps below it have completed
	epoch        uint64      // number of page moves begun
	unsentMoves  int         // block table entries that changed by a move and that no step carries yet
	lastPrefill  bool        // the last step was prefill, and not mixed
	lastDrafted  bool        // the last step had drafts
	costs        costs       // of steps
	elapsed      float64     // nanoseconds that steps took so far
	since        float64     // nanoseconds that prefill steps are expected to take since running sequences had rows
	burst        bool        // there is one
	burstFrom    uint64      // the first step of the last burst
	batches      []Batch     // reused in rotation, one for each step in flight
}

// New returns a scheduler without sequences. It fails if the options are out of bounds or the pages do not hold
// the longest sequence beside the reserve.
func New(o Options) (*Scheduler, error) {
	if min(o.MaxBatch, o.Chunk, o.PageTokens, o.Context-1, o.InFlight) < 1 || min(o.Reserve, o.ReservePages) < 0 {
		return nil, fmt.Errorf("scheduler: options out of bounds: %+v", o)
	}
	if longest, kept := pagesFor(o.Context, o.PageTokens), o.Reserve*o.ReservePages; o.Pages-kept < longest {
		return nil, fmt.Errorf("scheduler: of %d KV pages %d are kept for further users: "+
			"a sequence of %d tokens takes %d", o.Pages, kept, o.Context, longest)
	}
	slots := o.MaxBatch + o.Reserve
	s := &Scheduler{Options: o, pages: kv.New(o.Pages, o.PageTokens), holders: make([]*share, o.Pages+1),
		generations: make([]int32, slots), number: o.FirstStep, completed: o.FirstStep, batches: o.newBatches(),
		costs: newCosts(o.mostPrompt(), slots)}
	for i := range slots {
		s.freeSlots = append(s.freeSlots, int32(slots-1-i))
	}
	return s, nil
}

// mostPrompt returns the most prompt tokens of a step.
func (o Options) mostPrompt() int { return max(o.Chunk, o.LongChunk) }

// newBatches returns batches with memory for the largest steps, so that forming one allocates nothing.
func (o Options) newBatches() []Batch {
	slots := o.MaxBatch + o.Reserve
	rows := max(o.mostPrompt(), slots, o.MaxVerify)
	all := make([]Batch, o.InFlight)
	for i := range all {
		all[i] = Batch{Step: kernels.Step{Rows: make([]kernels.Row, 0, rows),
			Samples: make([]int32, 0, max(slots, o.MaxVerify)), Inits: make([]kernels.Init, 0, slots),
			Pages: make([]kernels.PageEntry, 0, rows+kernels.MaxMoves)},
			Drafts: make([]int, 0, slots), Sampled: make([]*Sequence, 0, slots), Masked: make([]*Sequence, 0, slots),
			Served: make([]*Sequence, 0, slots), entries: make([]entry, 0, rows+kernels.MaxMoves)}
	}
	return all
}

// pagesFor returns the number of pages that hold this number of tokens.
func pagesFor(tokens, pageTokens int) int { return (tokens + pageTokens - 1) / pageTokens }

// Add queues q, or returns ErrFull. It clamps MaxTokens to the rest of the context, or to 1 for a prompt that fills it:
// the step that ends the prompt has a result even so.
func (s *Scheduler) Add(q *Sequence) error {
	if s.root.queued >= s.MaxQueue {
		return ErrFull
	}
	q.MaxTokens = min(q.MaxTokens, max(1, s.Context-len(q.Prompt)))
	q.came = s.elapsed
	s.enqueue(q)
	return nil
}

// Running returns the number of sequences that run or moved out.
func (s *Scheduler) Running() int { return len(s.running) + len(s.moving) + len(s.out) }

// Joined returns the sequences that got their first slot since the last call. It is valid until the next call of
// Next, which may admit sequences and form no step: their pages may have to be copied first.
func (s *Scheduler) Joined() []*Sequence {
	joined := s.joined
	s.joined = s.joined[:0]
	return joined
}

// FreePages returns the number of KV pages that no sequence holds, cached ones included.
func (s *Scheduler) FreePages() int { return s.pages.Free() }

// Cache returns the counts of cached pages, and how many sequences moved out and came back so far.
func (s *Scheduler) Cache() (c kv.Stats, movedOut, movedIn uint64) {
	return s.pages.Stats(), s.movedOut, s.movedIn
}

// Remove ends q, whether it waits or runs: no later step names it. Its slot and pages are freed when the steps
// that name it have completed.
func (s *Scheduler) Remove(q *Sequence) {
	switch q.state {
	case waiting:
		if q.share == nil {
			return // it was never added
		}
		s.dequeue(q)
		s.leaveShare(q)
		q.state = gone
	case prefilling, decoding:
		s.stopRunning(q)
		s.leave(q)
	case movingOut:
		s.moving = without(s.moving, q)
		q.share.user.away--
		s.leave(q)
	case out:
		s.out = without(s.out, q)
		q.share.user.away--
		s.end(q)
	}
}

// leave frees q's slot and pages as soon as no step and no copy uses them.
func (s *Scheduler) leave(q *Sequence) {
	q.state = leaving
	s.leaving = append(s.leaving, q)
	s.free()
}

// end forgets a sequence that holds no slot and no page.
func (s *Scheduler) end(q *Sequence) {
	s.pages.GivePlaces(q.places)
	s.pages.Unreserve(q.promised)
	s.leaveShare(q)
	q.state, q.places, q.promised = gone, nil, 0
}

// Complete notes that every step up to and including number has completed, and frees slots and pages that only
// those steps used.
func (s *Scheduler) Complete(number uint64) {
	s.completed = number + 1
	s.endReread()
	s.free()
}

// free frees the slots and pages of leaving sequences that no step and no copy uses any more.
func (s *Scheduler) free() {
	s.leaving = slices.DeleteFunc(s.leaving, func(q *Sequence) bool {
		if q.moving > 0 || q.length > 0 && q.lastStep >= s.completed {
			return false
		}
		s.giveBack(q)
		s.end(q)
		return true
	})
	s.moving = slices.DeleteFunc(s.moving, s.moveOut)
}

// without removes q from list in place.
func without(list []*Sequence, q *Sequence) []*Sequence {
	for i := range list {
		if list[i] == q {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			return list[:len(list)-1]
		}
	}
	return list
}
