//go:build cuda && fault

package hardware

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"reel/kernels/device"
	gpu "reel/kernels/device/cuda"
)

// A start that waits for a GPU gives up soon: a test should see the end of it.
func init() { Patience.Limit = 3 * time.Second }

// spoiled is d as tests want it: SIGUSR1 has the next replay come after a kernel
// that writes where no memory is, and SIGUSR2 behind a wait that has no end.
func spoiled(d *gpu.Device) device.Device {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1, syscall.SIGUSR2)
	return spoiledDevice{d, asked}
}

type spoiledDevice struct {
	*gpu.Device
	asked <-chan os.Signal
}

// NewStream makes a stream that can be spoiled.
func (d spoiledDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return spoiledStream{s, d.Device, d.asked}, err
}

type spoiledStream struct {
	device.Stream
	device *gpu.Device
	asked  <-chan os.Signal
}

// Replay enqueues a graph, and before it what was asked for.
func (s spoiledStream) Replay(x device.Exec) error {
	select {
	case wish := <-s.asked:
		if err := s.spoil(wish); err != nil {
			return err
		}
	default:
	}
	return s.Stream.Replay(x)
}

func (s spoiledStream) spoil(wish os.Signal) error {
	if wish == syscall.SIGUSR1 {
		return s.Launch(outOfBounds{})
	}
	fmt.Fprintln(os.Stderr, "hangs")
	return s.device.Hang(s.Stream)
}

// outOfBounds writes 32 words far from all memory.
type outOfBounds struct{}

// Kernel is "out of bounds".
func (outOfBounds) Kernel() string { return "out of bounds" }

// Check finds nothing wrong with it.
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
