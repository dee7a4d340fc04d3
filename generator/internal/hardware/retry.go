package hardware

import (
	"errors"
	"fmt"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/kernels/device"
)

// Retry is the time that a start waits for a busy device or its memory, for example at boot or
// after another generator. Pause lies between two tries.
type Retry struct{ Limit, Pause time.Duration }

// Patience is the time that a start waits for a GPU or its memory. Another model may have been asked to leave, and a
// request waits for this one, so the pause is short: a try asks the driver, and opens the device at most. Tests change it.
var Patience = Retry{Limit: time.Minute, Pause: 50 * time.Millisecond}

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
		progress(0, fmt.Sprintf("%s, %.0f s: %v", config.WaitsForDevice, waited.Seconds(), err))
	}
}
