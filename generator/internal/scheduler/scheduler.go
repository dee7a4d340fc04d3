package scheduler

import (
	"errors"
	"fmt"
	"slices"

	"reel/kernels"
)

// ErrFull says that the queue is full; nothing was taken.
var ErrFull = errors.New("scheduler: queue is full")

// Options are the bounds of a Scheduler.
type Options struct {
	MaxBatch   int // sequences of one user that run at once
	Reserve    int // places past MaxBatch, each for a user that holds none
	MaxQueue   int // sequences that wait
	Chunk      int // prompt tokens of one prefill step
	Context    int // tokens of a sequence at most
	PageTokens int // tokens a KV page holds
	Pages      int // KV pages; without those of the reserve at least those of one longest sequence
	// ReservePages is how many pages are kept with each place of the reserve.
	ReservePages int
	// FirstStep is the number of the first step.
	FirstStep uint64
	// InFlight is how many steps may be formed before the first of them has completed.
	InFlight int
}

// Sequence is one request as the scheduler sees it.
type Sequence struct {
	Prompt    []int32
	MaxTokens int // clamped to the context by Add
	Sampling  kernels.Sampling
	// User is who asks, Connection where: places are shared out among users, and
	// a user's among its connections.
	User       uint32
	Connection uint64
	// Owner is the caller's; the scheduler hands it back untouched.
	Owner any

	slot       int32
	generation int32
	pages      []int32
	fed        int     // prompt tokens that steps have taken
	drawn      int     // tokens that steps draw, known yet or not
	length     int     // tokens that steps have taken, prompt and completion
	staged     int     // pages whose entry in the block table a step has carried
	moved      []int32 // entries below staged that have changed since
	moving     int     // pages that are being copied: no step may name the sequence
	lastStep   uint64  // that names it
	state      state
	share      *share // its connection's, from Add until nothing names it any more
	came       uint64 // before all of a higher number
}

type state uint8

const (
	waiting state = iota
	prefilling
	decoding
	leaving // ended; steps that name it, or copies of its pages, may still run
	gone
)

// Running tells whether the sequence holds a slot.
func (q *Sequence) Running() bool { return q.state == prefilling || q.state == decoding }

// Slot and Generation tell the sequence's results from those of others.
func (q *Sequence) Slot() (slot, generation int32) { return q.slot, q.generation }

// Batch is the next step and whom it serves.
type Batch struct {
	Prefill bool
	Step    kernels.Step
	// Sampled holds the sequence of each sampled row, in the order of Step.Samples.
	Sampled []*Sequence
	// Served holds every sequence that has a row in the step.
	Served []*Sequence
	// Joined holds the sequences that got their place with this step.
	Joined []*Sequence

	entries []entry // what Step.Pages was made of
	epoch   uint64  // of the page moves that Step.Pages knows
}

// entry is one entry of a sequence's block table.
type entry struct {
	q     *Sequence
	index int32
}

// Scheduler forms steps. Users have equal shares of places and prompt tokens, and
// so have a user's connections (share.go). A sequence joins when a slot and the
// pages for its prompt and all tokens it may ask for are free, and the reserve
// for further users stays whole (reserve.go): a running sequence never lacks a
// page and none is ever preempted. A step may be formed before the results of the
// one before it are known: a sequence's token is then found on the device, and a
// row too many, after an end of sequence that the host has not seen, writes to
// pages that its sequence still holds. Prompts go in chunks, and a prefill step
// alternates with a decode step, so that a long prompt does not hold up the
// others' tokens.
type Scheduler struct {
	Options
	pages       *Pages
	slots       []int32 // free
	generations []int32 // by slot
	root        share   // of all users
	ended       []*share
	arrivals    uint64
	holders     int         // users that hold a place
	within      int         // pages that users hold within their shares of the reserve
	running     []*Sequence // in the order in which they joined
	leaving     []*Sequence
	number      uint64 // of the next step
	completed   uint64 // steps below it are done
	epoch       uint64 // raised by every move of a page
	moves       int    // entries that have moved and that no step carries yet
	lastPrefill bool
	batches     []Batch // in turn, for the steps in flight
}

// New makes a scheduler.
func New(o Options) (*Scheduler, error) {
	if min(o.MaxBatch, o.Chunk, o.PageTokens, o.Context-1, o.InFlight) < 1 || min(o.Reserve, o.ReservePages) < 0 {
		return nil, fmt.Errorf("scheduler: options out of bounds: %+v", o)
	}
	if longest, kept := pagesFor(o.Context, o.PageTokens), o.Reserve*o.ReservePages; o.Pages-kept < longest {
		return nil, fmt.Errorf("scheduler: of %d KV pages %d are kept for further users: a sequence of %d tokens takes %d",
			o.Pages, kept, o.Context, longest)
	}
	places := o.MaxBatch + o.Reserve
	s := &Scheduler{Options: o, pages: NewPages(o.Pages), generations: make([]int32, places),
		number: o.FirstStep, completed: o.FirstStep, batches: make([]Batch, o.InFlight)}
	for i := range places {
		s.slots = append(s.slots, int32(places-1-i))
	}
	return s, nil
}

func pagesFor(tokens, pageTokens int) int { return (tokens + pageTokens - 1) / pageTokens }

// Add queues q. MaxTokens is clamped to what the context leaves.
func (s *Scheduler) Add(q *Sequence) error {
	if s.root.queued >= s.MaxQueue {
		return ErrFull
	}
	q.MaxTokens = min(q.MaxTokens, s.Context-len(q.Prompt))
	s.enter(q)
	return nil
}

// Waiting is how many sequences are queued.
func (s *Scheduler) Waiting() int { return s.root.queued }

// Running is how many sequences hold a slot.
func (s *Scheduler) Running() int { return len(s.running) }

// FreePages is how many KV pages nobody holds.
func (s *Scheduler) FreePages() int { return s.pages.Free() }

// Remove takes q out, wherever it is: no later step names it. Its slot and pages
// are free once the steps that name it have completed.
func (s *Scheduler) Remove(q *Sequence) {
	switch q.state {
	case waiting:
		if q.share == nil {
			return // it was never added
		}
		s.unqueue(q)
		s.quit(q)
		q.state = gone
	case prefilling, decoding:
		s.running = without(s.running, q)
		for a := q.share; a != nil; a = a.parent {
			a.running--
		}
		q.state = leaving
		s.leaving = append(s.leaving, q)
		s.free()
	}
}

// Complete says that every step up to and including number is done.
func (s *Scheduler) Complete(number uint64) {
	s.completed = number + 1
	s.free()
}

// free gives back what those that left held, where nothing names it any more.
func (s *Scheduler) free() {
	s.leaving = slices.DeleteFunc(s.leaving, func(q *Sequence) bool {
		if q.moving > 0 || q.length > 0 && q.lastStep >= s.completed {
			return false
		}
		for _, page := range q.pages {
			s.pages.Release(page)
		}
		s.slots = append(s.slots, q.slot)
		s.hold(q, -1, -len(q.pages))
		s.quit(q)
		s.moves -= len(q.moved)
		q.state, q.pages, q.moved = gone, nil, nil
		return true
	})
}

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

// Next forms the next step, or returns nil where there is nothing to do. The
// batch is valid for as many further calls as steps may be in flight.
func (s *Scheduler) Next() *Batch {
	b := s.blank()
	s.admit(b)
	prompts, decodes := s.count()
	switch {
	case prompts > 0 && (decodes == 0 || !s.lastPrefill):
		s.prefill(b)
	case decodes > 0:
		s.decode(b)
	default:
		return nil
	}
	s.Rebuild(b)
	s.lastPrefill = b.Prefill
	s.number++
	return b
}

// count tells how many sequences have prompt tokens left, and how many a token to draw.
func (s *Scheduler) count() (prompts, decodes int) {
	for _, q := range s.running {
		switch {
		case q.ready(prefilling):
			prompts++
		case q.ready(decoding):
			decodes++
		}
	}
	return prompts, decodes
}

// ready tells whether q is in a state, at rest, and has tokens left to draw. The
// last may have been staged while the host has not seen it yet.
func (q *Sequence) ready(in state) bool {
	return q.state == in && q.moving == 0 && q.drawn < q.MaxTokens
}

// admit gives places and pages to waiting sequences, each in its turn.
func (s *Scheduler) admit(b *Batch) {
	for q := s.nextJoin(); q != nil; q = s.nextJoin() {
		s.join(q)
		b.Joined = append(b.Joined, q)
	}
}

// join gives q its place and its pages, which are free.
func (s *Scheduler) join(q *Sequence) {
	s.unqueue(q)
	q.pages, _ = s.pages.Take(s.need(q))
	q.slot = s.slots[len(s.slots)-1]
	s.slots = s.slots[:len(s.slots)-1]
	s.hold(q, 1, len(q.pages))
	s.generations[q.slot]++
	q.generation, q.state = s.generations[q.slot], prefilling
	s.running = append(s.running, q)
	for a := q.share; a != nil; a = a.parent {
		a.running++
	}
}

// prefill fills a chunk with prompts that are not through, each in its turn. At
// most MaxBatch of them may end in one step: its pass samples no more.
func (s *Scheduler) prefill(b *Batch) {
	b.Prefill = true
	for q := s.nextPrompt(); q != nil && len(b.Step.Rows) < s.Chunk && len(b.Sampled) < s.MaxBatch; q = s.nextPrompt() {
		s.feed(b, q, s.Chunk-len(b.Step.Rows))
	}
}

// feed adds up to room prompt tokens of q.
func (s *Scheduler) feed(b *Batch, q *Sequence, room int) {
	if q.fed == 0 {
		b.Step.Inits = append(b.Step.Inits, kernels.Init{Slot: q.slot, Generation: q.generation, Prompt: int32(len(q.Prompt)), Sampling: q.Sampling})
	}
	for _, token := range q.Prompt[q.fed:min(q.fed+room, len(q.Prompt))] {
		s.row(b, q, int32(q.length), token)
		q.fed++
	}
	b.Served = append(b.Served, q)
	if q.fed == len(q.Prompt) {
		s.sample(b, q)
		q.state = decoding
	}
}

// decode gives every sequence whose prompt is through one row. Its token is the
// one that the device drew last.
func (s *Scheduler) decode(b *Batch) {
	for _, q := range s.running {
		if q.ready(decoding) {
			s.row(b, q, kernels.FromDevice, kernels.FromDevice)
			b.Served = append(b.Served, q)
			s.sample(b, q)
		}
	}
}

// row adds a row for q's next token, and its page where it is the page's first.
func (s *Scheduler) row(b *Batch, q *Sequence, position, token int32) {
	if index := q.length / s.PageTokens; index == q.staged {
		b.entries = append(b.entries, entry{q, int32(index)})
		q.staged++
	}
	b.Step.Rows = append(b.Step.Rows, kernels.Row{Slot: q.slot, Position: position, Token: token})
	q.length++
	for a := q.share; a != nil; a = a.parent {
		a.served++
	}
	q.lastStep = s.number
}

// sample has the row that was added last sampled.
func (s *Scheduler) sample(b *Batch, q *Sequence) {
	b.Step.Samples = append(b.Step.Samples, int32(len(b.Step.Rows)-1))
	b.Sampled = append(b.Sampled, q)
	q.drawn++
}
