//go:build linux

package main

import (
	"reel/generator/internal/memlimit"
	"reel/generator/internal/plan"
	"reel/kernels/device"
)

// hostHardware is this machine's processors.
func hostHardware() hardware {
	return hardware{Device: device.NewHost(hostOptions()), Profile: plan.HostProfile, machine: hostMachine, limits: memlimit.Here}
}
