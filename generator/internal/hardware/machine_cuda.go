//go:build cuda

package hardware

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	nvidia "reel/generator/internal/gpu"
	gpu "reel/kernels/device/cuda"
	"reel/protocol"
)

// describe returns what asks for d's memory; its name and driver stay the same.
func describe(d *gpu.Device) func() protocol.Machine {
	name, driver := d.Model(), driverVersion()
	return func() protocol.Machine {
		free, total, _ := d.MemInfo() // of a lost device: zeros
		return protocol.Machine{Name: name, Driver: driver, MemoryUsed: total - free, MemoryTotal: total}
	}
}

// driverVersion is empty where NVIDIA's management library is not installed.
func driverVersion() string {
	if nvml.Init() != nvml.SUCCESS {
		return ""
	}
	defer func() { _ = nvml.Shutdown() }() // nobody could mend it
	version, _ := nvml.SystemGetDriverVersion()
	return version
}

// openReader begins to read d's load and faults.
func openReader(d *gpu.Device) (Reader, error) {
	uuid, err := d.UUID()
	if err != nil {
		return nil, err
	}
	return nvidia.Open("GPU-" + uuid)
}
