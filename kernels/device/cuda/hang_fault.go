//go:build cuda && fault

package cuda

import "reel.internal/reel/kernels/device"

// Hang makes s, a stream of d, wait for a number that is never written, so that later
// work on it never runs. It exists only in builds for tests.
func (d *Device) Hang(s device.Stream) error {
	e, err := d.NewEvent()
	if err != nil {
		return err
	}
	never := e.(*event)
	never.number++
	return s.(*stream).wait(never)
}
