package scheduler

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
)

func mustNew(t *testing.T, o Options) *Scheduler {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func small() Options {
	return Options{MaxBatch: 4, MaxQueue: 100, Chunk: 16, Context: 64, PageTokens: 4, Pages: 64, InFlight: 1}
}

func prompt(n int) []int32 { return make([]int32, n) }

// finish completes a step as the engine does: it removes sequences that have all their tokens, and returns them.
func finish(s *Scheduler, b *Batch, tokens map[*Sequence]int) (done []*Sequence) {
	for _, q := range b.Sampled {
		if tokens[q]++; tokens[q] == q.MaxTokens {
			done = append(done, q)
		}
	}
	for _, q := range done {
		s.Remove(q)
	}
	s.Complete(b.Step.Number)
	return done
}

func TestOptionsOutOfBoundsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no batch":      func(o *Options) { o.MaxBatch = 0 },
		"no chunk":      func(o *Options) { o.Chunk = 0 },
		"no page":       func(o *Options) { o.PageTokens = 0 },
		"no context":    func(o *Options) { o.Context = 1 },
		"too few pages": func(o *Options) { o.Pages = 15 },
		"no reserve":    func(o *Options) { o.Reserve = -1 },
		"none but kept": func(o *Options) { o.Pages, o.Reserve, o.ReservePages = 18, 1, 3 },
	} {
		o := small()
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPromptGoesInChunks(t *testing.T) {
	s := mustNew(t, Options{MaxBatch: 4, MaxQueue: 4, Chunk: 64, Context: 512, PageTokens: 16, Pages: 64, InFlight: 1})
	q := &Sequence{Prompt: prompt(400), MaxTokens: 5}
	if err := s.Add(q); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for len(s.Next().Step.Samples) == 0 {
		steps++
	}
	if steps++; steps != 7 {
		t.Errorf("400 tokens in chunks of 64 took %d steps, wants 7", steps)
	}
}

// No more prompts end in a step than a prefill pass samples, though the chunk and the batch have room.
func TestPromptsThatEndInAStep(t *testing.T) {
	s := mustNew(t, Options{MaxBatch: 200, MaxQueue: 200, Chunk: 512, Context: 32, PageTokens: 16, Pages: 512, InFlight: 1})
	for range 150 {
		_ = s.Add(&Sequence{Prompt: prompt(2), MaxTokens: 1})
	}
	var ended []int
	for b := s.Next(); b != nil; b = s.Next() {
		ended = append(ended, len(b.Sampled))
		s.Complete(b.Step.Number)
	}
	if want := []int{MaxPrompts, MaxPrompts, 150 - 2*MaxPrompts}; !slices.Equal(ended, want) {
		t.Errorf("%v prompts ended in the steps, wants %v", ended, want)
	}
}

// A long prompt does not hold up sequences that decode.
func TestPrefillAlternatesWithDecode(t *testing.T) {
	s := mustNew(t, small())
	_ = s.Add(&Sequence{Prompt: prompt(1), MaxTokens: 50})
	s.Next()
	_ = s.Add(&Sequence{Prompt: prompt(60), MaxTokens: 4})
	var kinds []bool
	for range 8 {
		kinds = append(kinds, s.Next().Prefill)
	}
	if want := []bool{false, true, false, true, false, true, false, true}; !slices.Equal(kinds, want) {
		t.Errorf("prefill steps %v, wants %v", kinds, want)
	}
}

func TestQueueIsBoundedAndServedInOrder(t *testing.T) {
	o := small()
	o.MaxQueue, o.MaxBatch = 3, 1
	s := mustNew(t, o)
	var all []*Sequence
	for range 3 {
		q := &Sequence{Prompt: prompt(2), MaxTokens: 1}
		all = append(all, q)
		if err := s.Add(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Add(&Sequence{Prompt: prompt(2), MaxTokens: 1}); !errors.Is(err, ErrFull) {
		t.Fatalf("beyond the queue: %v, wants ErrFull", err)
	}
	for i, q := range all {
		b := s.Next()
		if joined := s.Joined(); len(joined) != 1 || joined[0] != q {
			t.Fatalf("slot %d went to another sequence", i)
		}
		s.Remove(q)
		s.Complete(b.Step.Number)
	}
}

func TestMaxTokensIsClampedToTheContext(t *testing.T) {
	s := mustNew(t, small())
	q := &Sequence{Prompt: prompt(60), MaxTokens: 1000}
	_ = s.Add(q)
	if q.MaxTokens != 4 {
		t.Errorf("max tokens %d, wants 4", q.MaxTokens)
	}
}

// Sixteen sequences share eight pages: each waits for pages, and all complete.
func TestFewPagesManySequences(t *testing.T) {
	s := mustNew(t, Options{MaxBatch: 16, MaxQueue: 16, Chunk: 8, Context: 32, PageTokens: 4, Pages: 8, InFlight: 1})
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for range 16 {
		if err := s.Add(&Sequence{Prompt: prompt(1 + r.IntN(20)), MaxTokens: 1 + r.IntN(20)}); err != nil {
			t.Fatal(err)
		}
	}
	tokens, done := map[*Sequence]int{}, 0
	for b := s.Next(); b != nil; b = s.Next() {
		done += len(finish(s, b, tokens))
	}
	if done != 16 || s.FreePages() != 8 || s.Running()+s.root.queued != 0 {
		t.Errorf("%d of 16 completed, %d pages free, %d running, %d waiting",
			done, s.FreePages(), s.Running(), s.root.queued)
	}
}

// deviceView follows the steps as a device sees them. It fails if two sequences write one page, if a row is out of
// order, or if a row's page was not published.
type deviceView struct {
	t       *testing.T
	s       *Scheduler
	tables  map[int32]map[int32]int32 // slot → index → page
	lengths map[int32]int32
}

func (h *deviceView) see(b *Batch) {
	for _, in := range b.Step.Inits {
		h.tables[in.Slot], h.lengths[in.Slot] = map[int32]int32{}, 0
	}
	for _, p := range b.Step.Pages {
		h.tables[p.Slot][p.Index] = p.Page
	}
	for _, q := range b.Served {
		if q.moving > 0 {
			h.t.Fatalf("slot %d is named while its page moves", q.slot)
		}
		for index, page := range h.tables[q.slot] {
			if q.pages[index] != page {
				h.t.Fatalf("slot %d: the device has page %d at %d, the host %d", q.slot, page, index, q.pages[index])
			}
		}
	}
	for _, row := range b.Step.Rows {
		if row.Position != kernels.FromDevice && row.Position != h.lengths[row.Slot] {
			h.t.Fatalf("slot %d: row at position %d, length %d", row.Slot, row.Position, h.lengths[row.Slot])
		}
		page, ok := h.tables[row.Slot][h.lengths[row.Slot]/int32(h.s.PageTokens)]
		if !ok || page == 0 {
			h.t.Fatalf("slot %d has no page for position %d", row.Slot, h.lengths[row.Slot])
		}
		h.lengths[row.Slot]++
	}
	h.disjoint()
}

func (h *deviceView) disjoint() {
	owner := map[int32]int32{}
	for _, q := range append(slices.Clone(h.s.running), h.s.leaving...) {
		for _, page := range q.pages {
			if other, taken := owner[page]; taken {
				h.t.Fatalf("page %d belongs to slots %d and %d", page, other, q.slot)
			}
			owner[page] = q.slot
		}
	}
}

// stepInFlight is a step that was formed and has not completed.
type stepInFlight struct {
	number  uint64
	sampled []*Sequence
}

// With random joins, ends, cancellations and moves, and several steps in flight, no page belongs to two sequences
// and all pages become free.
func TestRandomSchedulesKeepPagesApart(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 2))
	for range 50 {
		s := mustNew(t, Options{MaxBatch: 1 + r.IntN(6), MaxQueue: 20, Chunk: 1 + r.IntN(20), Context: 40,
			PageTokens: 1 + r.IntN(8), Pages: 40 + r.IntN(60), InFlight: 1 + r.IntN(3), FirstStep: r.Uint64N(5)})
		s.pages.Shuffle(r)
		h := &deviceView{t: t, s: s, tables: map[int32]map[int32]int32{}, lengths: map[int32]int32{}}
		h.drive(r)
		sequences(s, s.Remove)
		s.Complete(s.number)
		if s.FreePages() != s.Pages || len(s.freeSlots) != s.MaxBatch || s.unsentMoves != 0 {
			t.Fatalf("%d of %d pages and %d of %d slots are free, %d moves are left",
				s.FreePages(), s.Pages, len(s.freeSlots), s.MaxBatch, s.unsentMoves)
		}
	}
}

func (h *deviceView) drive(r *rand.Rand) {
	s, tokens := h.s, map[*Sequence]int{}
	var inFlight []stepInFlight
	var moves []Move
	for range 300 {
		if r.IntN(3) == 0 {
			_ = s.Add(&Sequence{Prompt: prompt(1 + r.IntN(39)), MaxTokens: 1 + r.IntN(39)})
		}
		if b := s.Next(); b != nil {
			h.see(b)
			inFlight = append(inFlight, stepInFlight{b.Step.Number, slices.Clone(b.Sampled)})
		}
		if len(inFlight) > 0 && (len(inFlight) == s.InFlight || r.IntN(2) == 0) {
			f := inFlight[0]
			inFlight = inFlight[1:]
			finish(s, &Batch{Step: kernels.Step{Number: f.number}, Sampled: f.sampled}, tokens)
		}
		sequences(s, func(q *Sequence) {
			switch r.IntN(20) {
			case 0:
				s.Remove(q)
			case 1:
				if m, ok := s.Relocate(q, r.IntN(8)); ok {
					moves = append(moves, m)
				}
			}
		})
		if len(moves) > 0 && r.IntN(2) == 0 {
			s.FinishMove(moves[0])
			moves = moves[1:]
		}
	}
	for _, m := range moves {
		s.FinishMove(m)
	}
}

// A removed sequence keeps its pages and slot until the steps that name it have completed, since the device may
// still write them.
func TestPagesOutliveTheStepsThatNameThem(t *testing.T) {
	o := small()
	o.InFlight = 2
	s := mustNew(t, o)
	q := &Sequence{Prompt: prompt(4), MaxTokens: 10}
	_ = s.Add(q)
	first := s.Next().Step.Number
	second := s.Next().Step.Number
	s.Remove(q)
	if s.Complete(first); s.FreePages() == s.Pages {
		t.Fatal("the pages were freed while a step that names them runs")
	}
	if s.Complete(second); s.FreePages() != s.Pages || s.Running() != 0 {
		t.Fatalf("%d pages free of %d after the last step", s.FreePages(), s.Pages)
	}
}

// Steps are formed before earlier records are known, but never for more tokens than were asked for.
func TestNoRowPastMaxTokens(t *testing.T) {
	o := small()
	o.InFlight = 4
	s := mustNew(t, o)
	_ = s.Add(&Sequence{Prompt: prompt(4), MaxTokens: 3})
	steps := 0
	for s.Next() != nil {
		steps++
	}
	if steps != 3 {
		t.Errorf("%d steps for a prompt and 3 tokens, wants 3", steps)
	}
}

// A batch older than a move is stale until Rebuild. No batch is formed that names a sequence with a moving page.
func TestMoveMakesABatchStale(t *testing.T) {
	s := mustNew(t, small())
	q, other := &Sequence{Prompt: prompt(6), MaxTokens: 10}, &Sequence{Prompt: prompt(1), MaxTokens: 10}
	_ = s.Add(q)
	_ = s.Add(other)
	b := s.Next()
	if s.Stale(b) {
		t.Fatal("stale without a move")
	}
	m, ok := s.Relocate(q, 0)
	if !ok || !s.Stale(b) || !s.WaitsForMove(b) || m.After != b.Step.Number {
		t.Fatalf("move %+v %v, stale %v, waits for it %v", m, ok, s.Stale(b), s.WaitsForMove(b))
	}
	s.Rebuild(b)
	if s.Stale(b) || !slices.Contains(b.Step.Pages, kernels.PageEntry{Slot: q.slot, Index: 0, Page: m.To}) {
		t.Fatalf("rebuilt to %+v", b.Step.Pages)
	}
	s.Complete(b.Step.Number)
	if b := s.Next(); len(b.Served) != 1 || b.Served[0] != other {
		t.Fatal("a step names a sequence with a moving page")
	}
	s.FinishMove(m)
	if b := s.Next(); len(b.Served) != 2 {
		t.Fatal("the sequence does not run again after its page has moved")
	}
}

// sequences calls fn for every running and waiting sequence, running ones first.
func sequences(s *Scheduler, fn func(*Sequence)) {
	all := slices.Clone(s.running)
	for _, user := range s.root.children {
		for _, name := range user.children {
			for _, connection := range name.children {
				all = append(all, connection.waiting...)
			}
		}
	}
	for _, q := range all {
		fn(q)
	}
}
