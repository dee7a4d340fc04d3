//go:build linux && cuda && fault

package main

import (
	"os"
	"os/signal"
	"syscall"

	"reel/kernels/device"
	gpu "reel/kernels/device/cuda"
)

// spoiled is d as tests want it: SIGUSR1 has the next replay come after a kernel
// that writes where no memory is.
func spoiled(d *gpu.Device) device.Device {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	return spoiledDevice{d, asked}
}

type spoiledDevice struct {
	*gpu.Device
	asked <-chan os.Signal
}

// NewStream makes a stream that can be spoiled.
func (d spoiledDevice) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return spoiledStream{s, d.asked}, err
}

type spoiledStream struct {
	device.Stream
	asked <-chan os.Signal
}

// Replay enqueues a graph, and before it the kernel where that was asked for.
func (s spoiledStream) Replay(x device.Exec) error {
	select {
	case <-s.asked:
		if err := s.Launch(outOfBounds{}); err != nil {
			return err
		}
	default:
	}
	return s.Stream.Replay(x)
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
