package hardware

import (
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/device"
)

// Host opens this machine's processors.
func Host() Hardware {
	return Hardware{Device: device.NewHost(hostOptions()), Profile: plan.HostProfile,
		Machine: HostMachine, Limits: memlimit.Here}
}
