//go:build cuda

package cuda

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"reel.internal/reel/kernels/device"
)

// event is a number in pinned memory that a stream raises after its earlier work. The host
// polls the number, so it learns that a step is done without a driver call. Now and then
// it asks the driver whether the stream has failed.
type event struct {
	word
	d      *Device
	number uint32  // written by the last record
	stream *stream // of the last record
}

// word holds the number of one event at a time. The number only rises, over all events
// that use the word.
type word struct {
	host    *atomic.Uint32
	address uint64 // on the device
}

const (
	eventPage = 4096 // bytes of pinned memory that are allocated for events at a time
	eventLine = 64   // bytes of an event: a cache line of its own

	// faultInterval is the time between two checks of a stream that is waited for. A
	// stream that failed raises no number.
	faultInterval = 50 * time.Millisecond
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

// reached reports whether the last record has been written. Numbers may wrap around.
func (e *event) reached() bool { return int32(e.host.Load()-e.number) >= 0 }

// Done reports whether the event's last record has completed.
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

// Synchronize waits for the event's last record. It polls in C, where Go leaves a thread alone. A goroutine that
// polls for 10 ms is taken off the processor, and one that is bound to its thread needs two others to come back.
func (e *event) Synchronize() error {
	if err := e.d.enter(device.Call{Kind: device.CallSynchronize}); err != nil {
		return err
	}
	for !e.await(faultInterval) {
		if err := e.stream.failed(); err != nil {
			return err
		}
	}
	return nil
}

// Destroy frees the event. Its last record must have completed.
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
