package hardware

import (
	"reel/generator/internal/memlimit"
	"reel/generator/internal/plan"
	"reel/kernels/device"
)

// Host opens this machine's processors.
func Host() Hardware {
	return Hardware{Device: device.NewHost(hostOptions()), Profile: plan.HostProfile,
		Machine: HostMachine, Limits: memlimit.Here}
}
