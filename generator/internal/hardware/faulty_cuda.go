//go:build cuda && fault

package hardware

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// A start in tests waits only briefly for a GPU.
func init() { Patience.Limit = 3 * time.Second }

// spoiled returns d with faults for tests: after SIGUSR1 the next replay follows a kernel that
// writes out of bounds, after SIGUSR2 it follows a wait without end.
func spoiled(d *gpu.Device) device.Device {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGUSR2)
	return spoiledDevice{d, asked}
}

type spoiledDevice struct {
	*gpu.Device
	asked <-chan os.Signal
}

// NewStream returns a stream that signals can spoil.
func (d spoiledDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return spoiledStream{s, d.Device, d.asked}, err
}

type spoiledStream struct {
	device.Stream
	device *gpu.Device
	asked  <-chan os.Signal
}

// WaitFor and Failed are those of the GPU's stream, which a device of several GPUs asks.
func (s spoiledStream) WaitFor(limit time.Duration) bool {
	return s.Stream.(interface{ WaitFor(time.Duration) bool }).WaitFor(limit)
}

// Failed returns the error that stopped the stream, or nil.
func (s spoiledStream) Failed() error { return s.Stream.(interface{ Failed() error }).Failed() }

// Replay enqueues the fault that a signal asked for, then the graph.
func (s spoiledStream) Replay(x device.Exec) error {
	select {
	case fault := <-s.asked:
		if err := s.spoil(fault); err != nil {
			return err
		}
	default:
	}
	return s.Stream.Replay(x)
}

func (s spoiledStream) spoil(fault os.Signal) error {
	if fault == syscall.SIGUSR1 {
		return s.Launch(outOfBounds{})
	}
	fmt.Fprintln(os.Stderr, "hangs")
	return s.device.Hang(s.Stream)
}

// outOfBounds writes 32 words far outside all allocations.
type outOfBounds struct{}

// Kernel returns "out of bounds".
func (outOfBounds) Kernel() string { return "out of bounds" }

// Check accepts the op.
func (outOfBounds) Check() error { return nil }

// Host does nothing.
func (outOfBounds) Host(*device.Host) {}

// CUDA launches the kernel of kernels.Fill.
func (outOfBounds) CUDA(q *gpu.Queue) error {
	return gpu.Launch(q, "reel_fill", gpu.Grid{Threads: 32}, struct {
		data  uint64
		n     int64
		value uint32
		_     uint32
	}{data: 1 << 44, n: 32, value: 1})
}
