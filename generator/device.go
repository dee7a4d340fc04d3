//go:build linux

package main

import (
	"reel/generator/internal/memlimit"
	"reel/kernels/device"
)

// hostHardware is this machine's processors.
func hostHardware() hardware {
	return hardware{Device: device.NewHost(hostOptions()), profile: hostProfile, machine: hostMachine, limits: memlimit.Here}
}
