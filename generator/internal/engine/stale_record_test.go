package engine

import (
	"errors"
	"testing"

	"reel.internal/reel/kernels/device"
)

// A record of another step, slot or generation than a running sequence expects is a failure of the device, not a
// token. The records of a sequence that has left are not read.
func TestStaleRecordIsNoToken(t *testing.T) {
	// The index of a word in the record.
	for name, word := range map[string]int{"nothing": -1, "step": 0, "slot": 2, "generation": 3} {
		for _, left := range []bool{false, true} {
			w := newWatch()
			b := built(t, device.HostOptions{}, nano(), w.wrap)
			w.engine = b.Engine
			s, h := b.submit(Request{Tokens: []int32{1, 2}, MaxTokens: 9})
			commands, _, _ := b.takeCommands()
			if err := errors.Join(b.apply(commands, nil), b.formAndEnqueue(), b.stream.Synchronize()); err != nil {
				t.Fatal(err)
			}
			step := b.inFlight[0]
			if word >= 0 {
				slot := int(step.batch.Step.Number) % b.memory.RingSlots
				w.h.Int32(w.results)[len(w.h.Int32(w.results))/b.memory.RingSlots*slot+word] += 1000
			}
			if left {
				_ = b.apply([]command{{kind: cancel, handle: h}}, nil)
			}
			err := b.completeStep()
			if stale := word >= 0 && !left; errors.Is(err, errWrongRecord) != stale || !stale && err != nil {
				t.Errorf("another %s, left %v: %v", name, left, err)
			}
			if got := len(s.tokens); got != 1 && word < 0 && !left || got != 0 && (word >= 0 || left) {
				t.Errorf("another %s, left %v: %d tokens were delivered", name, left, got)
			}
			b.finishAll(ErrShutdown)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
