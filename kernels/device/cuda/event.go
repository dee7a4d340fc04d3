//go:build cuda

package cuda

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"reel/kernels/device"
)

// event is a number in pinned memory, which a stream raises when what came before
// is done. So the host learns that a step is done without a call of the driver;
// it looks at the number, and asks the stream now and then whether it has failed.
type event struct {
	word
	d      *Device
	number uint32  // that the last record writes
	stream *stream // of the last record
}

// word is where an event's number lies. It never falls, whoever has the word.
type word struct {
	host    *atomic.Uint32
	address uint64
}

const (
	eventPage = 4096 // bytes of pinned memory that are taken for events at a time
	eventLine = 64   // bytes of an event, a cache line of its own

	// faultInterval is how often a stream that is waited for is asked whether it
	// has failed: a stream that failed raises no number.
	faultInterval = 50 * time.Millisecond
	// looks is how often the number is looked at between two looks at the clock.
	looks = 1 << 12
)

// NewEvent makes an event.
func (d *Device) NewEvent() (device.Event, error) {
	if err := d.enter(device.Call{Kind: device.CallNew}); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.words) == 0 {
		host, address, err := d.pinned(eventPage)
		if err != nil {
			return nil, err
		}
		clear(unsafe.Slice((*byte)(host), eventPage))
		for at := 0; at < eventPage; at += eventLine {
			d.words = append(d.words, word{(*atomic.Uint32)(unsafe.Add(host, at)), address + uint64(at)})
		}
	}
	w := d.words[len(d.words)-1]
	d.words = d.words[:len(d.words)-1]
	return &event{word: w, d: d, number: w.host.Load()}, nil
}

// reached tells whether the last record has been written.
func (e *event) reached() bool { return int32(e.host.Load()-e.number) >= 0 }

// Done tells whether the event's last record has completed.
func (e *event) Done() (bool, error) {
	if err := e.d.enter(device.Call{Kind: device.CallQuery}); err != nil {
		return false, err
	}
	if e.reached() {
		return true, nil
	}
	err := e.stream.failed()
	return err == nil && e.reached(), err
}

// Synchronize waits for the event's last record, and keeps its processor busy meanwhile.
func (e *event) Synchronize() error {
	if err := e.d.enter(device.Call{Kind: device.CallSynchronize}); err != nil {
		return err
	}
	for asked := time.Now(); ; {
		for range looks {
			if e.reached() {
				return nil
			}
		}
		if now := time.Now(); now.Sub(asked) >= faultInterval {
			asked = now
			if err := e.stream.failed(); err != nil {
				return err
			}
		}
	}
}

// Destroy gives the event back, whose last record has completed.
func (e *event) Destroy() error {
	if e.d == nil {
		return fmt.Errorf("%w: event", device.ErrDestroyed)
	}
	d := e.d
	e.d = nil
	d.mu.Lock()
	d.words = append(d.words, e.word)
	d.mu.Unlock()
	return d.enter(device.Call{Kind: device.CallDestroy})
}
