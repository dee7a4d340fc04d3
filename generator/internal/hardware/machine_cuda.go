//go:build cuda

package hardware

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	nvidia "reel.internal/reel/generator/internal/gpu"
	gpu "reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/protocol"
)

// describe returns a function that reads d's memory. Name and driver are read once.
func describe(d *gpu.Device) func() protocol.Machine {
	name, driver := d.Model(), driverVersion()
	return func() protocol.Machine {
		free, total, _ := d.MemInfo() // zeros if the device is lost
		return protocol.Machine{Name: name, Driver: driver, MemoryUsed: total - free, MemoryTotal: total}
	}
}

// driverVersion returns an empty string without NVIDIA's management library.
func driverVersion() string {
	if nvml.Init() != nvml.SUCCESS {
		return ""
	}
	defer func() { _ = nvml.Shutdown() }() // an error has no consequence
	version, _ := nvml.SystemGetDriverVersion()
	return version
}

// openReader starts to read d's load and faults.
func openReader(d *gpu.Device) (Reader, error) {
	uuid, err := d.UUID()
	if err != nil {
		return nil, err
	}
	return nvidia.Open("GPU-" + uuid)
}
