//go:build cuda

package hardware

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// Choose starts the driver, unless o.Device is host. For device auto it replaces o.Device by host or cuda. Then it
// begins to open the GPU, which Open returns: files are read meanwhile. A signal from stop ends Choose with
// [config.ErrSignal].
func Choose(stop <-chan os.Signal, log zerolog.Logger, _ func(), o *config.Options) error {
	if o.Device == "host" {
		return nil
	}
	watched := make(chan []*gpuMemory, 1)
	go func(gpus []int) { watched <- watchEach(gpus) }(o.Devices()) // NVML starts as slowly as the driver
	err := decide(o, log, startDriver(gpu.Init, setUp, stop, log))
	if err == nil && o.Device == "cuda" {
		begin(*o, func() []*gpuMemory { return <-watched })
	}
	return err
}

// DriverLibrary names the driver's library, without which this program does not start.
func DriverLibrary() string { return "libcuda.so.1, with which this program was started" }

// FindCUDA succeeds, because this is the cuda program.
func FindCUDA() error { return nil }

// TryCUDA returns an error if the driver refuses this program.
func TryCUDA() error { return gpu.Init() }

// opening is a GPU that is being opened.
type opening struct {
	device string
	gpus   []int
	link   string // of --gpu-link
	opened chan result
}

// result is what open returns.
type result struct {
	h   Hardware
	err error
}

// begun is what begin began and Open has not taken; nil: there is none.
var begun atomic.Pointer[opening]

// begin opens the GPU that o names on another goroutine.
func begin(o config.Options, watch func() []*gpuMemory) {
	b := &opening{device: o.Device, gpus: o.Devices(), link: o.GPULink, opened: make(chan result, 1)}
	begun.Store(b)
	go func() {
		h, err := open(o, watch)
		b.opened <- result{h, err}
	}()
}

// Open opens the chosen device, or returns the one that Choose has begun to open.
func Open(o config.Options) (Hardware, error) {
	if b := begun.Swap(nil); b != nil && b.device == o.Device && b.link == o.GPULink && slices.Equal(b.gpus, o.Devices()) {
		r := <-b.opened
		return r.h, r.err
	}
	return open(o, func() []*gpuMemory { return watchEach(o.Devices()) })
}

// open opens the chosen device. watch returns what its GPUs had taken before.
func open(o config.Options, watch func() []*gpuMemory) (Hardware, error) {
	if o.Device == "host" {
		return hostFor(o)
	}
	if o.Ranks() > 1 {
		return openRanks(o, watch())
	}
	taken := watch()[0]
	d, err := openGPU(o.Devices()[0])
	if err != nil {
		return Hardware{}, err
	}
	h := Hardware{Device: spoiled(d), Profile: plan.GPUProfile.On(d.Capability()), Machine: describe(d),
		OpenReader: func() (Reader, error) { return openReaders(o.Devices(), d) }}
	if taken != nil {
		h.Taken = taken.taken
		if bytes, _ := taken.taken(); bytes > 0 {
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
	d, err := gpu.New(number, cuda.Kernels)
	if errors.Is(err, device.ErrBadBuffer) {
		return nil, config.Refuse(config.ErrConfig, "GPU %d: %w: %w", number, config.ErrNoGPU, err)
	}
	if errors.Is(err, device.ErrOutOfMemory) { // no room even for a context beside other programs
		err = fmt.Errorf("%w: %w", device.ErrBusy, err)
	}
	return d, err
}

// laterOverhead is the bytes that the driver takes later, for a model's kernels, streams, events and first launches.
const laterOverhead = 48 << 20

// setUp is the time that a start waits for a machine that sets up its GPUs.
var setUp = Retry{Limit: time.Minute, Pause: time.Second}
