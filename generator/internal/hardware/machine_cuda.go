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

// readers are those of the GPUs that share a model, by the GPUs' numbers.
type readers struct {
	numbers []int
	each    []*nvidia.Reader
}

// openReaders starts to read the load and faults of GPUs with these numbers.
func openReaders(numbers []int, gpus ...*gpu.Device) (Reader, error) {
	r := &readers{numbers: numbers}
	for _, d := range gpus {
		uuid, err := d.UUID()
		if err == nil {
			var one *nvidia.Reader
			if one, err = nvidia.Open("GPU-" + uuid); err == nil {
				r.each = append(r.each, one)
			}
		}
		if err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// Read asks the driver for the state of each GPU.
func (r *readers) Read() (all []nvidia.Reading) {
	for i, one := range r.each {
		now := one.Read()
		now.GPU = r.numbers[i]
		all = append(all, now)
	}
	return all
}

// Close frees the readers.
func (r *readers) Close() {
	for _, one := range r.each {
		one.Close()
	}
}
