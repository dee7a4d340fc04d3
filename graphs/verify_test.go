package graphs

import (
	"encoding/binary"
	"errors"
	"testing"

	"reel.internal/reel/kernels/device"
)

// noteTrial is a step with the log as its outcome.
type noteTrial struct {
	*rig
	spoil func() // spoils the state that Prepare made; may be nil
}

func (t *noteTrial) Prepare() error {
	l := t.h.Int32(t.log)
	clear(l)
	if t.spoil != nil {
		t.spoil()
	}
	return nil
}

func (t *noteTrial) Run(plan Plan) error {
	t.next++
	if err := t.Launch(t.s, plan, t.next); err != nil {
		return err
	}
	return t.s.Synchronize()
}

func (t *noteTrial) Outcome() ([]byte, error) {
	var out []byte
	for _, v := range t.notes() {
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return out, nil
}

func TestVerifyComparesReplayWithEager(t *testing.T) {
	r := newRig(t, device.HostOptions{}, Options{})
	r.precapture(Decode(4))
	trial := &noteTrial{rig: r}
	if err := Verify(trial, Decode(4), r.Acquire(Decode(4))); err != nil {
		t.Errorf("an exact replay: %v", err)
	}
	// The pass logs its padded size, like a pass that computes with its padding.
	if err := Verify(trial, Decode(3), r.Acquire(Decode(3))); !errors.Is(err, ErrDiffers) {
		t.Errorf("a replay that depends on its padding: %v, wants ErrDiffers", err)
	}
	runs := 0
	trial.spoil = func() { // as if one run left state for the next
		if runs++; runs == 2 {
			r.h.Int32(r.log)[0] = 1
		}
	}
	if err := Verify(trial, Decode(4), r.Acquire(Decode(4))); !errors.Is(err, ErrDiffers) {
		t.Errorf("a replay from another state: %v, wants ErrDiffers", err)
	}
}
