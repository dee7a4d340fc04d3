//go:build linux

package main

import (
	"reel/kernels/device"
)

// hostHardware is this machine's processors. A chunk of 64 tokens takes about as
// long as the largest batch's decode step, so that neither holds up the other.
func hostHardware() hardware {
	return hardware{Device: device.NewHost(device.HostOptions{}), maxBatch: 64, chunk: 64, graphMemory: 64 << 20, machine: hostMachine,
		spare: func() (int64, error) {
			free, err := availableMemory()
			return free / 2, err
		}}
}
