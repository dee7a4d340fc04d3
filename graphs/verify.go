package graphs

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrDiffers says that a replay did not give the bits of the eager run.
var ErrDiffers = errors.New("graphs: a replay differs from the eager run")

// Trial is one step that can be run from the same state again and again.
type Trial interface {
	// Prepare brings all memory that a step reads into one known state, the same
	// each time, poisons all that it must not read, and describes the step.
	Prepare() error
	// Run enqueues the step as plan says, and waits for it.
	Run(plan Plan) error
	// Outcome is every bit that the step is there to compute.
	Outcome() ([]byte, error)
}

// Verify compares a replay of plan with the step run op by op at the unpadded
// shape k, bit for bit.
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
