package assembly

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"syscall"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/device"
)

// Reading a tokenizer takes about ten times the size of its file, measured with 150,000 tokens
// in 12 MiB, and 15 times that of a GGUF file's metadata, measured with 128,000 tokens in 5.3 MiB.
// startRoom is for Go's runtime.
const (
	tokenizerFactor = 12
	metadataFactor  = 16
	startRoom       = 32 << 20 // bytes
)

// checkStart refuses to read a model's files if a limit does not leave enough memory, because
// Go ends a process whose allocation fails.
func checkStart(files fs.FS, list []memlimit.Limit) error {
	needs := int64(startRoom)
	if info, err := fs.Stat(files, "tokenizer.json"); err == nil {
		needs += tokenizerFactor * info.Size()
	}
	return checkRoom(needs, list)
}

// checkRoom refuses to read a tokenizer that needs more than a limit leaves.
func checkRoom(needs int64, list []memlimit.Limit) error {
	for _, l := range list {
		if l.Kind != memlimit.Machine && l.Left < needs {
			return fmt.Errorf("%w: reading the tokenizer needs about %s; the bound is %s: raise it",
				config.ErrNoRoom, plan.Size(needs), plan.DescribeLimit(l))
		}
	}
	return nil
}

// CannotServe marks an error of the named model as [config.ErrConfig]. If the system refused
// memory it is [config.ErrNoRoom] as well, and lists the limits.
func CannotServe(name string, err error) error {
	if !errors.Is(err, syscall.ENOMEM) {
		return config.Refuse(config.ErrConfig, "the model in %s cannot be served: %w%s", name, err,
			downloadAgain(name, err))
	}
	list, _ := memlimit.Here() // without the limits, the system's error suffices
	text := ""
	for _, l := range list[min(1, len(list)):] {
		text += "; " + plan.DescribeLimit(l)
	}
	return config.Refuse(config.ErrConfig,
		"%w: the model in %s cannot be loaded: %w%s: raise the limit, or serve a smaller model",
		config.ErrNoRoom, name, err, text)
}

// boundHeap sets Go's memory limit, unless GOMEMLIMIT is set: the heap may grow by room
// bytes. This keeps the process within its cgroup and rlimits.
func boundHeap(room int64) {
	if room < plan.Unlimited/2 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(goMemory() + room)
	}
}

// goMemory returns the bytes that Go has from the system, as SetMemoryLimit counts them.
func goMemory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// noMemory marks an engine's allocation that cgroups or rlimits refused on the host as an
// error that the operator can correct.
func noMemory(h hardware.Hardware, name string, err error) error {
	if h.Available == nil && errors.Is(err, device.ErrOutOfMemory) {
		return CannotServe(name, err)
	}
	return err
}
