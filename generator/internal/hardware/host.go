package hardware

import (
	"fmt"
	"runtime"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// Host opens this machine's processors.
func Host() Hardware {
	return Hardware{Device: device.NewHost(hostOptions()), Profile: plan.HostProfile,
		Machine: HostMachine, Limits: memlimit.Here}
}

// hostFor opens this machine's processors, as one device or as simulated ranks that share them.
func hostFor(o config.Options) (Hardware, error) {
	h, n := Host(), o.Ranks()
	if n == 1 {
		return h, nil
	}
	ranks, err := device.NewHostRanks(n, hostPatience, func(rank int) device.HostOptions {
		opts := hostOptions()
		if rank < n-1 {
			opts.Delay = nil // a device of tests fails on its last rank
		}
		opts.Workers = max(1, runtime.GOMAXPROCS(0)/n)
		return opts
	})
	if err != nil {
		return Hardware{}, err
	}
	h.Device = ranks
	machine := h.Machine
	h.Machine = func() protocol.Machine {
		m := machine()
		m.Name = fmt.Sprintf("%d simulated GPUs on %s", n, m.Name)
		return m
	}
	return h, nil
}
