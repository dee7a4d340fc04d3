package engine

import (
	"errors"
	"testing"

	"reel/kernels/device"
)

// A result record of another step, slot or generation than the one that is
// waited for is dropped.
func TestStaleResultIsDropped(t *testing.T) {
	for name, word := range map[string]int{"nothing": -1, "step": 0, "slot": 2, "generation": 3} { // of the record
		w := newWatch()
		b := built(t, device.HostOptions{}, nano(), w.wrap)
		w.engine = b.Engine
		s, _ := b.submit(Request{Tokens: []int32{1, 2}, MaxTokens: 9})
		commands, _, _ := b.take()
		if err := errors.Join(b.apply(commands, nil), b.fill(), b.stream.Synchronize()); err != nil {
			t.Fatal(err)
		}
		f := b.flights[0]
		if word >= 0 {
			slot := int(f.batch.Step.Number) % b.lane.RingSlots
			w.h.Int32(w.results)[len(w.h.Int32(w.results))/b.lane.RingSlots*slot+word] += 1000
		}
		if err := b.Engine.complete(); err != nil {
			t.Fatal(err)
		}
		if got := len(s.tokens); got != 1 && word < 0 || got != 0 && word >= 0 {
			t.Errorf("another %s: %d tokens were delivered", name, got)
		}
		b.finishAll(ErrShutdown)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
