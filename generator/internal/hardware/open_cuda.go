//go:build cuda

package hardware

import (
	"errors"
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// Choose replaces o.Device auto by cuda. This program links the driver, so a driver is
// present.
func Choose(_ <-chan os.Signal, _ zerolog.Logger, _ func(), o *config.Options) error {
	if o.Device == "auto" {
		o.Device = "cuda"
	}
	return nil
}

// DriverLibrary names the driver's library, without which this program does not start.
func DriverLibrary() string { return "libcuda.so.1, with which this program was started" }

// FindCUDA succeeds, because this is the cuda program.
func FindCUDA() error { return nil }

// TryCUDA succeeds, because this program runs.
func TryCUDA() error { return nil }

// Open opens the chosen device.
func Open(o config.Options) (Hardware, error) {
	if o.Device == "host" {
		return hostFor(o)
	}
	if o.Ranks() > 1 {
		return openRanks(o)
	}
	number := o.Devices()[0]
	watch := watchMemory(number)
	d, err := openGPU(number)
	if err != nil {
		return Hardware{}, err
	}
	h := Hardware{Device: spoiled(d), Profile: plan.GPUProfile, Machine: describe(d),
		OpenReader: func() (Reader, error) { return openReaders([]int{number}, d) }}
	if watch != nil {
		h.Taken = watch.taken
		if bytes, _ := watch.taken(); bytes > 0 {
			h.Overhead = bytes + laterOverhead
		}
	}
	h.Available = func() (int64, error) {
		free, _, err := d.MemInfo()
		return h.Overhead - laterOverhead + free - free/32, err // free does not include the context
	}
	h.Whole = func() (int64, error) {
		_, total, err := d.MemInfo()
		return total - total/32, err
	}
	return h, nil
}

// openGPU opens one GPU.
func openGPU(number int) (*gpu.Device, error) {
	d, err := gpu.New(number, cuda.Fatbin)
	if errors.Is(err, device.ErrBadBuffer) {
		return nil, config.Refuse(config.ErrConfig, "GPU %d: %w: %w", number, config.ErrNoGPU, err)
	}
	if errors.Is(err, device.ErrOutOfMemory) { // no room even for a context beside other programs
		err = fmt.Errorf("%w: %w", device.ErrBusy, err)
	}
	return d, err
}

// laterOverhead is the bytes that the driver takes later, for streams, events and first
// launches.
const laterOverhead = 32 << 20
