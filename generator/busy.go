//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"reel/generator/internal/config"
	"reel/generator/internal/plan"
	"reel/kernels/device"
)

// waiting is how long a start waits for a device that other programs hold, or
// for the memory that they do: those of a boot, or the generator before this one.
type waiting struct{ limit, pause time.Duration }

var gpuPatience = waiting{limit: time.Minute, pause: time.Second}

// whileBusy calls try until it is no longer device.ErrBusy, or the limit has
// passed; then it is tried no more.
func (p waiting) whileBusy(progress func(float64, string), try func() error) error {
	for begun := time.Now(); ; time.Sleep(p.pause) {
		err := try()
		if !errors.Is(err, device.ErrBusy) {
			return err
		}
		waited := time.Since(begun)
		if waited >= p.limit {
			return fmt.Errorf("after %v: %w", waited.Round(time.Millisecond), err)
		}
		progress(0, fmt.Sprintf("waiting for the GPU, %.0f s: %v", waited.Seconds(), err))
	}
}

// fit plans what the device's memory is used for. What does not fit is the
// operator's to mend, unless it would if other programs held none: that is
// device.ErrBusy.
func (l *prepared) fit(p plan.Planner, use plan.WeightUse) error {
	b, err := l.hardware.budget(use)
	if err != nil {
		return err
	}
	l.sizes, l.plan, err = p.Plan(b.Bytes)
	err = b.Explain(err)
	l.heapRoom = plan.ProgramRoom + l.sizes.Graphs + max(0, b.Hard-l.sizes.Total())
	if !errors.Is(err, config.ErrNoRoom) {
		if err != nil {
			err = config.Refuse(config.ErrConfig, "%w", err)
		}
		return err
	}
	if l.hardware.whole != nil {
		whole, failed := l.hardware.whole()
		if failed != nil {
			return failed
		}
		if _, _, e := p.Plan(whole); e == nil {
			return fmt.Errorf("%w: %w", device.ErrBusy, err)
		}
	}
	return config.Refuse(config.ErrConfig, "%w", err)
}
