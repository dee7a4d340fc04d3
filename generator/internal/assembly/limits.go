package assembly

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"syscall"

	"reel/generator/internal/config"
	"reel/generator/internal/hardware"
	"reel/generator/internal/memlimit"
	"reel/generator/internal/plan"
	"reel/kernels/device"
)

// Reading a tokenizer takes about ten times its file, as measured with 150,000
// tokens in 12 MiB, and Go needs a little to start with.
const (
	tokenizerFactor = 12
	startRoom       = 32 << 20 // bytes
)

// checkStart refuses to read a model's files where a limit does not leave room for
// that: Go ends a process that it cannot get memory for.
func checkStart(files fs.FS, list []memlimit.Limit) error {
	needs := int64(startRoom)
	if info, err := fs.Stat(files, "tokenizer.json"); err == nil {
		needs += tokenizerFactor * info.Size()
	}
	for _, l := range list {
		if l.Kind != memlimit.Machine && l.Left < needs {
			return fmt.Errorf("%w: reading the tokenizer needs about %s; the bound is %s: raise it",
				config.ErrNoRoom, plan.GiB(needs), plan.DescribeLimit(l))
		}
	}
	return nil
}

// CannotServe is err, which the operator can mend, of the model of that name.
// Memory that the system refused is told apart, with the limits that there are.
func CannotServe(name string, err error) error {
	if !errors.Is(err, syscall.ENOMEM) {
		return config.Refuse(config.ErrConfig, "the model in %s cannot be served: %w", name, err)
	}
	list, _ := memlimit.Here() // without them the system's word has to do
	text := ""
	for _, l := range list[min(1, len(list)):] {
		text += "; " + plan.DescribeLimit(l)
	}
	return config.Refuse(config.ErrConfig, "%w: the model in %s cannot be loaded: %w%s: raise the limit, or serve a smaller model",
		config.ErrNoRoom, name, err, text)
}

// boundHeap has Go collect garbage in time to stay within the cgroup and rlimits,
// unless the environment says when: the heap may grow by the program's own room
// and by what the plan leaves.
func (l Prepared) boundHeap() {
	if l.heapRoom < plan.Unlimited/2 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(goMemory() + l.heapRoom)
	}
}

// goMemory is the bytes that Go holds of the system, as SetMemoryLimit counts them.
func goMemory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// noMemory is err of an engine's start on the host: memory that cgroups or rlimits
// refuse is the operator's to mend.
func noMemory(h hardware.Hardware, name string, err error) error {
	if h.Available == nil && errors.Is(err, device.ErrOutOfMemory) {
		return CannotServe(name, err)
	}
	return err
}

// fit plans what the device's memory is used for. What does not fit is the
// operator's to mend, unless it would if other programs held none: that is
// device.ErrBusy.
func (l *Prepared) fit(p plan.Planner, use plan.WeightUse) error {
	b, err := l.Hardware.Budget(use)
	if err != nil {
		return err
	}
	l.sizes, l.EngineOptions, err = p.Plan(b.Bytes)
	err = b.Explain(err)
	l.heapRoom = plan.ProgramRoom + l.sizes.Graphs + max(0, b.Hard-l.sizes.Total())
	if !errors.Is(err, config.ErrNoRoom) {
		if err != nil {
			err = config.Refuse(config.ErrConfig, "%w", err)
		}
		return err
	}
	if l.Hardware.Whole != nil {
		whole, failed := l.Hardware.Whole()
		if failed != nil {
			return failed
		}
		if _, _, e := p.Plan(whole); e == nil {
			return fmt.Errorf("%w: %w", device.ErrBusy, err)
		}
	}
	return config.Refuse(config.ErrConfig, "%w", err)
}
