package hardware

import (
	"errors"
	"fmt"
	"time"

	"reel.internal/reel/kernels/device"
)

// Retry is the time that a start waits for a busy device or its memory, for example at boot or
// after another generator. Pause lies between two tries.
type Retry struct{ Limit, Pause time.Duration }

// Patience is the time that a start waits for a GPU. Tests shorten it.
var Patience = Retry{Limit: time.Minute, Pause: time.Second}

// WhileBusy calls try until its error is not [device.ErrBusy], or the limit has passed.
func (p Retry) WhileBusy(progress func(float64, string), try func() error) error {
	for begun := time.Now(); ; time.Sleep(p.Pause) {
		err := try()
		if !errors.Is(err, device.ErrBusy) {
			return err
		}
		waited := time.Since(begun)
		if waited >= p.Limit {
			return fmt.Errorf("after %v: %w", waited.Round(time.Millisecond), err)
		}
		progress(0, fmt.Sprintf("waiting for the GPU, %.0f s: %v", waited.Seconds(), err))
	}
}
