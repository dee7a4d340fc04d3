package engine

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"reel.internal/reel/generator/internal/scheduler"
	"reel.internal/reel/kernels/device"
)

// hostTier is pinned host memory for KV pages that leave the device, and the copies under way. A stream of its own
// makes them, beside the steps.
type hostTier struct {
	stream    device.Stream
	slabs     []device.Buffer // of slabPages pages each, but the last
	mapped    []*device.Mapped
	slabPages int
	begun     []transfers    // oldest first
	spare     []device.Event // of ended transfers
	pinning   chan struct{}  // closed when no more slabs are made
	stop      chan struct{}  // closed to make no more slabs
	stored    uint64         // pages copied to the tier so far, those of sequences included
	loaded    uint64         // pages copied back
}

// transfers are copies that were begun together.
type transfers struct {
	list []scheduler.Transfer
	done device.Event
}

const (
	// slabBytes is how much host memory is pinned at a time. A launch waits up to 0.5 ms beside it, which two steps
	// in flight hide; beside 64 MiB it waits 3 ms. A tier has at most maxSlabs, since each is a mapping of the process.
	slabBytes = 8 << 20
	maxSlabs  = 4096
	// groupBytes is how much is copied as one group, whose end the host waits for: about a millisecond over PCIe 5.
	// maxTransfers bounds a group of small pages, since beginning each copy takes the engine's thread a microsecond
	// or two.
	groupBytes   = 64 << 20
	maxTransfers = 256
	// maxGroups is how many groups are under way: one is copied and the next waits behind it. Beside steps it is one,
	// so that the bus rests for a part of each step.
	maxGroups            = 2
	maxGroupsBesideSteps = 1
)

// startHostTier begins to pin the host tier's memory, on a goroutine of its own, while the engine serves.
func (e *Engine) startHostTier() {
	page := e.memory.PageBytes()
	pages := e.opts.HostCache / page
	if pages == 0 {
		return
	}
	if e.host.slabPages = e.opts.slabPages; e.host.slabPages == 0 {
		e.host.slabPages = int(min(pages, max(1, slabBytes/page, (pages+maxSlabs-1)/maxSlabs)))
	}
	e.host.pinning, e.host.stop = make(chan struct{}), make(chan struct{})
	go e.pin(int(pages))
}

// pin allocates slabs until they hold so many pages. If the system refuses one, the tier stays smaller.
func (e *Engine) pin(pages int) {
	defer close(e.host.pinning)
	runtime.LockOSThread() // for good: a thread that saw a device loss makes no other call
	if after := e.opts.PinAfter; after != nil {
		select {
		case <-after:
		case <-e.host.stop:
			return
		}
	}
	for made := 0; made < pages; made += e.host.slabPages {
		select {
		case <-e.host.stop:
			return
		default:
		}
		if e.isLost() {
			return
		}
		slab, mapped, err := e.dev.Pinned(int64(min(e.host.slabPages, pages-made)) * e.memory.PageBytes())
		if errors.Is(err, device.ErrSticky) {
			e.markLost(err)
			return
		}
		if err != nil {
			page := e.memory.PageBytes()
			e.warn(fmt.Sprintf("the host cache stays at %d of %d bytes: %v: raise the limit on memory, or lower "+
				"--host-cache", int64(made)*page, int64(pages)*page, err))
			return
		}
		e.send(command{kind: addSlab, slab: slab, mapped: mapped})
	}
}

func (e *Engine) warn(line string) {
	if e.opts.Warn != nil {
		e.opts.Warn(line)
	}
}

// addSlab adds a slab's places to the tier.
func (e *Engine) addSlab(c command) {
	e.host.slabs, e.host.mapped = append(e.host.slabs, c.slab), append(e.host.mapped, c.mapped)
	e.sched.AddPlaces(int(c.slab.Bytes() / e.memory.PageBytes()))
}

// place returns the memory of a place.
func (e *Engine) place(place int32) device.Buffer {
	page := e.memory.PageBytes()
	return e.host.slabs[int(place)/e.host.slabPages].Slice(int64(int(place)%e.host.slabPages)*page, page)
}

// placeMemory returns the memory of a place as the host addresses it.
func (e *Engine) placeMemory(place int32) []byte {
	page := e.memory.PageBytes()
	return e.host.mapped[int(place)/e.host.slabPages].Bytes()[int64(int(place)%e.host.slabPages)*page:][:page]
}

// beginTransfers begins the copies that the scheduler asks for. They wait for no step: pages that are stored were
// written by completed steps, and pages that are loaded are in no step's block table.
func (e *Engine) beginTransfers() error {
	n := int(min(maxTransfers, max(1, groupBytes/e.memory.PageBytes())))
	most := maxGroups
	if len(e.inFlight) > 0 {
		most = maxGroupsBesideSteps
	}
	for len(e.host.begun) < most {
		list := e.sched.Transfers(n)
		if len(list) == 0 {
			return nil
		}
		if err := e.beginGroup(list); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) beginGroup(list []scheduler.Transfer) error {
	done, err := e.spareEvent()
	if err != nil {
		return err
	}
	e.host.begun = append(e.host.begun, transfers{list, done})
	for _, t := range list {
		if err := e.transfer(t); err != nil {
			return err
		}
	}
	return e.host.stream.Record(done)
}

// transfer launches the copies of a page.
func (e *Engine) transfer(t scheduler.Transfer) error {
	if t.Out {
		return e.memory.StorePage(e.host.stream, t.Page, e.place(t.Place))
	}
	return e.memory.LoadPage(e.host.stream, t.Page, e.place(t.Place))
}

func (e *Engine) spareEvent() (device.Event, error) {
	if n := len(e.host.spare); n > 0 {
		done := e.host.spare[n-1]
		e.host.spare = e.host.spare[:n-1]
		return done, nil
	}
	return e.dev.NewEvent()
}

// finishTransfers ends the copies that are done. One stream makes all, so they end in the order of their begin.
func (e *Engine) finishTransfers() error {
	for len(e.host.begun) > 0 {
		t := e.host.begun[0]
		if done, err := t.done.Done(); err != nil || !done {
			return err
		}
		e.host.begun = slices.Delete(e.host.begun, 0, 1)
		e.host.spare = append(e.host.spare, t.done)
		for _, transfer := range t.list {
			e.sched.FinishTransfer(transfer)
			if transfer.Out {
				e.host.stored++
			} else {
				e.host.loaded++
			}
		}
	}
	return nil
}

// endHostTier waits until no more slabs are made.
func (e *Engine) endHostTier() {
	if e.host.pinning != nil {
		close(e.host.stop)
		<-e.host.pinning
		commands, _, _ := e.takeCommands()
		for _, c := range commands {
			e.takeBack(c)
		}
	}
}

// takeBack takes in a command that would otherwise be lost with its memory or places.
func (e *Engine) takeBack(c command) {
	switch c.kind {
	case addSlab:
		e.addSlab(c)
	case pagesRead:
		e.sched.FinishRead(&c.read.sequence.scheduled, c.read.from, c.read.places, nil)
	}
}

// abandonTransfers gives back the accounts of copies that will not be waited for.
func (e *Engine) abandonTransfers() {
	for _, t := range e.host.begun {
		for _, transfer := range t.list {
			e.sched.FinishTransfer(transfer)
		}
	}
	for {
		list := e.sched.Transfers(maxTransfers)
		if len(list) == 0 {
			return
		}
		for _, transfer := range list {
			e.sched.FinishTransfer(transfer)
		}
	}
}

// releases returns the functions that free the tier's events and memory. Its stream has been destroyed.
func (h *hostTier) releases(dev device.Device) (all []func() error) {
	for _, t := range h.begun {
		all = append(all, t.done.Destroy)
	}
	for _, done := range h.spare {
		all = append(all, done.Destroy)
	}
	for _, slab := range h.slabs {
		all = append(all, func() error { return dev.Free(slab) })
	}
	return all
}
