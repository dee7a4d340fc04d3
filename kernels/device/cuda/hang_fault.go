//go:build cuda && fault

package cuda

import "reel/kernels/device"

// Hang has s, a stream of d, wait for a number that nobody writes: all that
// follows on it is never done. A build for tests.
func (d *Device) Hang(s device.Stream) error {
	e, err := d.NewEvent()
	if err != nil {
		return err
	}
	never := e.(*event)
	never.number++
	return s.(*stream).wait(never)
}
