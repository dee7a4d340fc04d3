package assembly

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

const miB = 1 << 20

// roomy is the limit of a machine with 8 GiB free.
var roomy = memlimit.Limit{Kind: memlimit.Machine, Name: "the machine's memory", Bound: 16 << 30, Left: 8 << 30}

func limit(kind memlimit.Kind, name string, left int64) memlimit.Limit {
	return memlimit.Limit{Kind: kind, Name: name, Bound: left + 100*miB, Left: left}
}

// bounded opens the host with these limits on a machine with enough memory.
func bounded(t *testing.T, list ...memlimit.Limit) func(config.Options) (hardware.Hardware, error) {
	h := hardware.Host()
	t.Cleanup(func() { h.Device.(*device.Host).Close() })
	h.Limits = func() ([]memlimit.Limit, error) { return append([]memlimit.Limit{roomy}, list...), nil }
	return func(config.Options) (hardware.Hardware, error) { return h, nil }
}

// A cgroup or an rlimit shrinks the KV pool. A start that does not fit ends with exit 78,
// out_of_memory and the limit's name, before anything is allocated.
func TestLimitsBindThePlan(t *testing.T) {
	free, err := prepareOn(bounded(t), config.Options{MaxGraphs: 8}, func(float64, string) {})
	if err != nil {
		t.Fatal(err)
	}
	rooms := map[memlimit.Kind]int64{
		memlimit.Cgroup: plan.ProgramRoom, memlimit.AddressSpace: plan.SpaceRoom, memlimit.Data: plan.DataRoom}
	for kind, room := range rooms {
		enough := limit(kind, "a limit", room+24*miB)
		l, err := prepareOn(bounded(t, enough), config.Options{MaxGraphs: 8}, func(float64, string) {})
		if s := l.sizes; err != nil || s.Total() > 24*miB || s.Pages >= free.sizes.Pages || !s.Serves() {
			t.Errorf("%v: %v, %d pages take %s", kind, err, l.sizes.Pages, plan.Size(l.sizes.Total()))
		}
		if most := plan.ProgramRoom + l.sizes.Graphs + 24*miB; l.heapRoom < plan.ProgramRoom || l.heapRoom > most {
			t.Errorf("%v: Go's heap may grow by %s, wants at most %s", kind, plan.Size(l.heapRoom), plan.Size(most))
		}
		_, err = prepareOn(bounded(t, limit(kind, "a limit", room+2*miB)), config.Options{}, func(float64, string) {})
		if !errors.Is(err, config.ErrNoRoom) || failure.ExitCode(err) != failure.ExitConfig ||
			failure.Explain(err).Code != protocol.CodeOutOfMemory ||
			!strings.Contains(err.Error(), "a limit of ") {
			t.Errorf("%v: got %v", kind, err)
		}
	}
}

// A start is refused if a cgroup cannot hold the weights beside the rest, because every step
// would read them from disk. The machine's free memory has no such rule.
func TestWeightsCountInACgroup(t *testing.T) {
	const model = "../model/testdata/qwen3"
	s, err := openSource(os.DirFS(model))
	if err != nil {
		t.Fatal(err)
	}
	use := plan.UseOf(s.tensors)
	info, err := os.Stat(model + "/model.safetensors")
	if err == nil {
		err = s.tensors.Close()
	}
	if err != nil || use.Resident+use.Copied != info.Size() {
		t.Fatalf("%+v of %v, %v", use, info, err)
	}
	o := config.Options{Model: model, MaxBatch: 1, MaxSeqLen: 16}
	for spare, fits := range map[int64]bool{0: true, -use.Resident: false} {
		l := limit(memlimit.Cgroup, "memory.max", plan.ProgramRoom+use.Resident+use.Copied+miB/4+spare)
		_, err := prepareOn(bounded(t, l), o, func(float64, string) {})
		if (err == nil) != fits {
			t.Errorf("%s spare: %v", plan.Size(spare), err)
		}
	}
}

// A limit without enough memory to read the tokenizer refuses the start before Go fails.
func TestStartIsRefusedBeforeReading(t *testing.T) {
	files := fstest.MapFS{"tokenizer.json": {Data: make([]byte, miB)}}
	const needs = startRoom + tokenizerFactor*miB
	for _, kind := range []memlimit.Kind{memlimit.Cgroup, memlimit.AddressSpace, memlimit.Data} {
		if err := checkStart(files, []memlimit.Limit{roomy, limit(kind, "a limit", needs)}); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
		err := checkStart(files, []memlimit.Limit{roomy, limit(kind, "a limit", needs-1)})
		if !errors.Is(err, config.ErrNoRoom) || !strings.Contains(err.Error(), "a limit") {
			t.Errorf("%v: %v", kind, err)
		}
	}
	if err := checkStart(files, []memlimit.Limit{limit(memlimit.Machine, "", 1)}); err != nil {
		t.Error(err)
	}
}

// Memory that the system refuses is out_of_memory, in the loader and in the engine.
func TestRefusedMemoryIsToldApart(t *testing.T) {
	for _, err := range []error{
		CannotServe("m", fmt.Errorf("mmap: %w", syscall.ENOMEM)),
		noMemory(hardware.Hardware{}, "m", fmt.Errorf("%w: %w", device.ErrOutOfMemory, syscall.ENOMEM)),
	} {
		if !errors.Is(err, config.ErrNoRoom) || failure.ExitCode(err) != failure.ExitConfig ||
			failure.Explain(err).Code != protocol.CodeOutOfMemory {
			t.Errorf("got %v", err)
		}
	}
	if err := CannotServe("m", errors.New("another")); errors.Is(err, config.ErrNoRoom) ||
		failure.ExitCode(err) != failure.ExitConfig {
		t.Errorf("got %v", err)
	}
}

// Go's memory limit follows the plan, unless the environment sets it or only the machine
// bounds the process.
func TestHeapIsBounded(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	set := func(room int64, variable string) int64 {
		t.Setenv("GOMEMLIMIT", variable)
		debug.SetMemoryLimit(math.MaxInt64)
		boundHeap(room)
		return debug.SetMemoryLimit(-1)
	}
	if got := set(1<<30, ""); got < 1<<30 || got > 4<<30 {
		t.Errorf("got %d", got)
	}
	if got := set(1<<30, "5GiB"); got != math.MaxInt64 {
		t.Errorf("over the environment: %d", got)
	}
	if got := set(plan.Unlimited, ""); got != math.MaxInt64 {
		t.Errorf("without a limit: %d", got)
	}
}
