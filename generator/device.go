//go:build linux

package main

import (
	"reel/kernels/device"
)

// hostHardware is this machine's processors.
func hostHardware() hardware {
	return hardware{Device: device.NewHost(hostOptions()), profile: hostProfile, machine: hostMachine,
		available: func() (int64, error) {
			free, err := availableMemory()
			return free / 2, err
		}}
}
