package graphs

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrDiffers means that a replay and the eager run gave different bits.
var ErrDiffers = errors.New("graphs: a replay differs from the eager run")

// Trial is a step that can be repeated from the same state.
type Trial interface {
	// Prepare brings all memory that the step reads into the same state each time,
	// poisons the memory that it must not read, and writes the step's descriptor.
	Prepare() error
	// Run enqueues the step as plan says and waits for it.
	Run(plan Plan) error
	// Outcome returns every bit of the step's result.
	Outcome() ([]byte, error)
}

// Verify compares a replay of plan with an eager run of the step at the unpadded
// shape k, bit for bit. The error is [ErrDiffers] or the trial's.
func Verify(t Trial, k Key, plan Plan) error {
	want, err := outcome(t, Plan{Kind: Eager, Key: k})
	if err != nil {
		return fmt.Errorf("eager run of %s: %w", k, err)
	}
	got, err := outcome(t, plan)
	if err != nil {
		return fmt.Errorf("replay of %s: %w", plan.Key, err)
	}
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%w: %s on the graph of %s, from byte %d of %d", ErrDiffers, k, plan.Key, at, len(want))
}

func outcome(t Trial, plan Plan) ([]byte, error) {
	if err := t.Prepare(); err != nil {
		return nil, err
	}
	if err := t.Run(plan); err != nil {
		return nil, err
	}
	return t.Outcome()
}
