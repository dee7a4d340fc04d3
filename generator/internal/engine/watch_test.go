package engine

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// watch is a device that follows, from the descriptors alone, the block tables and the pages that are being copied,
// and records a fault if a step is enqueued with a stale or moving page, or if a slot or page is reused too early.
type watch struct {
	device.Device
	h       *device.Host
	engine  *Engine
	stage   kernels.Stage // for the ring and its layout
	results device.Buffer
	made    int // number of streams made
	steps   uint64
	moved   int
	table   map[entryAt]int32 // pages by slot and index
	due     map[entryAt]int32 // new pages of entries that moved and that no step has carried since
	waited  map[device.Event]bool
	left    map[int32]bool // pages that were moved from
	// generation is that of each slot's sequence.
	generation map[int32]int32
	named      [8]named // of the latest steps, by number
	faults     []error
}

// named holds the slots and pages that a step names.
type named struct{ slots, pages map[int32]bool }

type entryAt struct{ slot, index int32 }

func newWatch() *watch {
	return &watch{table: map[entryAt]int32{}, due: map[entryAt]int32{}, waited: map[device.Event]bool{},
		left: map[int32]bool{}, generation: map[int32]int32{}}
}

func (w *watch) wrap(d device.Device) device.Device {
	w.Device, w.h = d, d.(*device.Host)
	return w
}

// NewStream wraps the first two streams, which are the engine's. The third is the roller's.
func (w *watch) NewStream() (device.Stream, error) {
	s, err := w.Device.NewStream()
	if w.made++; w.made > 2 {
		return s, err
	}
	return &watchedStream{Stream: s, w: w}, err
}

// watchedStream is a stream of the engine.
type watchedStream struct {
	device.Stream
	w         *watch
	capturing bool
}

func (s *watchedStream) BeginCapture() error {
	s.capturing = true
	return s.Stream.BeginCapture()
}

func (s *watchedStream) EndCapture() (device.Graph, error) {
	s.capturing = false
	return s.Stream.EndCapture()
}

func (s *watchedStream) Wait(e device.Event) error {
	s.w.waited[e] = true
	return s.Stream.Wait(e)
}

func (s *watchedStream) Launch(op device.Op) error {
	switch op := op.(type) {
	case kernels.Stage:
		if s.w.stage = op; !s.capturing {
			s.w.step()
		}
	case kernels.Sample:
		s.w.results = op.Records
	case kernels.Restore:
		s.w.restored(op)
	case kernels.CopyPage:
		s.w.copied(int32(op.From), int32(op.To))
	}
	return s.Stream.Launch(op)
}

func (s *watchedStream) Replay(x device.Exec) error {
	s.w.step()
	return s.Stream.Replay(x)
}

// copied notes that the entries which name page from must name page to.
func (w *watch) copied(from, to int32) {
	w.moved++
	w.unnamedPage(to)
	w.left[from] = true
	for at, page := range w.table {
		if next, moved := w.due[at]; next == from || !moved && page == from {
			w.due[at] = to
		}
	}
}

// step reads the descriptor of the step that is about to be enqueued.
func (w *watch) step() {
	l := w.stage.Layout
	d := w.h.Int32(w.stage.Ring)[int(w.steps%uint64(w.stage.RingSlots))*l.Words():][:l.Words()]
	mine := named{map[int32]bool{}, map[int32]bool{}}
	w.named[w.steps%uint64(len(w.named))] = mine
	w.steps++
	const head, row, entry = 8, 3, 3 // words, as in kernels.StepLayout
	inits := head + row*l.MaxRows + l.MaxSamples
	pages := l.Words() - entry*(l.MaxRows+kernels.MaxMoves)
	for i := range int(d[2]) {
		slot := d[inits+i*(pages-inits)/l.MaxSamples]
		w.unnamed(func(n named) bool { return n.slots[slot] })
		w.forget(slot)
		w.generation[slot] = d[inits+i*(pages-inits)/l.MaxSamples+1]
	}
	for i := range int(d[3]) {
		e := d[pages+entry*i:]
		at := entryAt{e[0], e[1]}
		w.unnamedPage(e[2])
		if w.table[at] = e[2]; w.due[at] == e[2] {
			delete(w.due, at)
		}
	}
	for i := range int(d[0]) {
		w.check(d[head+row*i], mine)
	}
}

// restored reads the state of a slot that is restored. Other sequences may read the pages meanwhile. A sequence that
// is restored again, with more pages, may be in flight itself.
func (w *watch) restored(op kernels.Restore) {
	const head = 16 // words, as in kernels.SlotState
	staged, slot := w.h.Int32(op.Staged), int32(op.Slot)
	if w.generation[slot] != staged[0] {
		w.unnamed(func(n named) bool { return n.slots[slot] })
		w.forget(slot)
	}
	w.generation[slot] = staged[0]
	for i := range int32(op.Pages) {
		w.table[entryAt{slot, i}] = staged[head+i]
	}
}

// forget drops the entries of a slot that starts a new sequence.
func (w *watch) forget(slot int32) {
	for at := range w.table {
		if at.slot == slot {
			delete(w.table, at)
			delete(w.due, at)
		}
	}
}

// Faults that watch records.
var (
	errStale  = errors.New("a step with a stale entry was enqueued")
	errMoving = errors.New("a step that names a moving page was enqueued")
	errReused = errors.New("a slot or a page was reused while a step in flight names it")
)

// unnamed checks that no step in flight names a slot or page that is about to be reused.
func (w *watch) unnamed(is func(named) bool) {
	if w.engine == nil { // New has not returned
		return
	}
	for _, step := range w.engine.inFlight {
		if n := step.batch.Step.Number; is(w.named[n%uint64(len(w.named))]) {
			w.faults = append(w.faults, fmt.Errorf("%w: at step %d, named by step %d", errReused, w.steps-1, n))
		}
	}
}

// unnamedPage is unnamed for a page. A page that was moved away from is free when the copy is done, which followed the
// last step that names the page: the device has completed that step, though the engine may not have seen it yet.
func (w *watch) unnamedPage(page int32) {
	left := w.left[page]
	delete(w.left, page)
	w.unnamed(func(n named) bool { return n.pages[page] && !(left && w.completed()) })
}

// completed reports whether the device has completed the oldest step in flight.
func (w *watch) completed() bool {
	done, err := w.engine.events[w.engine.inFlight[0].batch.Step.Number%depth].Done()
	return err == nil && done
}

// check checks all pages of a slot that the step names, and adds them to mine.
func (w *watch) check(slot int32, mine named) {
	mine.slots[slot] = true
	for index := int32(0); ; index++ {
		at := entryAt{slot, index}
		page, ok := w.table[at]
		if !ok {
			return
		}
		mine.pages[page] = true
		if to, moved := w.due[at]; moved {
			w.faults = append(w.faults, fmt.Errorf("%w: step %d, slot %d, entry %d is page %d, moved to %d",
				errStale, w.steps-1, slot, index, page, to))
		}
		for _, m := range w.engine.moves {
			if (m.From == page || m.To == page) && !w.waited[m.done] {
				w.faults = append(w.faults, fmt.Errorf("%w: step %d, page %d", errMoving, w.steps-1, page))
			}
		}
	}
}
