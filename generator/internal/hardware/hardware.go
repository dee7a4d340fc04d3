// Package hardware chooses and opens the device that a generator runs on.
package hardware

import (
	"reel.internal/reel/generator/internal/gpu"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// Hardware is an opened device with its profile and its sources of measurements.
type Hardware struct {
	device.Device
	plan.Profile
	Machine    func() protocol.Machine
	Taken      func() (bytes int64, by string) // bytes of this process, and their source; nil if unknown
	OpenReader func() (Reader, error)          // reads a GPU's load and faults; nil without a GPU
	// Available returns the bytes that may be taken, with the profile's overhead. It is nil
	// for the host, which Limits bound.
	Available func() (int64, error)
	Limits    func() ([]memlimit.Limit, error) // on this process's memory
	// Whole returns the bytes that would be available if no other program took any. It is nil
	// if a start does not wait for other programs.
	Whole func() (int64, error)
}

// Reader reads the state of all GPUs of the model until Close.
type Reader interface {
	Read() []gpu.Reading
	Close()
}

// Budget returns the bytes that a plan may allocate. w is the weights' share of the host's
// memory.
func (h Hardware) Budget(w plan.WeightUse) (plan.Budget, error) {
	if h.Available != nil {
		bytes, err := h.Available()
		return plan.Budget{Bytes: bytes, Hard: plan.Unlimited}, err
	}
	list, err := h.Limits()
	return plan.HostBudget(list, w), err
}
