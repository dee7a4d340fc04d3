package hardware

import (
	"reel/generator/internal/gpu"
	"reel/generator/internal/memlimit"
	"reel/generator/internal/plan"
	"reel/kernels/device"
	"reel/protocol"
)

// Hardware is a device and what it does at once.
type Hardware struct {
	device.Device
	plan.Profile
	Machine    func() protocol.Machine
	Taken      func() (bytes int64, by string) // by this process; nil where nobody knows
	OpenReader func() (Reader, error)          // of a GPU's load and faults; nil where there is none
	// Available is how many bytes may be taken, the profile's overhead included; nil
	// for the host, which limits bounds.
	Available func() (int64, error)
	Limits    func() ([]memlimit.Limit, error) // of this process's memory
	// Whole is how many bytes there would be if no other program held any; nil
	// where others are not waited for.
	Whole func() (int64, error)
}

// Reader reads a GPU until it is closed.
type Reader interface {
	Read() gpu.Reading
	Close()
}

// Budget is what the plan may deal out; a GPU's budget has no limit
// to name.
func (h Hardware) Budget(w plan.WeightUse) (plan.Budget, error) {
	if h.Available != nil {
		bytes, err := h.Available()
		return plan.Budget{Bytes: bytes, Hard: plan.Unlimited}, err
	}
	list, err := h.Limits()
	return plan.HostBudget(list, w), err
}
