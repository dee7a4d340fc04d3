//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"syscall"

	"reel/generator/internal/config"
	"reel/generator/internal/memlimit"
	"reel/generator/internal/weights"
	"reel/kernels/device"
)

// Bytes that the program takes beside what the plan counts, after the plan was
// made: 4 MiB of an idle generator's heap, and the texts and frames of clients. Go
// reserves address space for its heap 64 MiB at a time.
const (
	programRoom = 64 << 20  // resident
	dataRoom    = 96 << 20  // of private mappings
	spaceRoom   = 128 << 20 // of address space
)

// Reading a tokenizer takes about ten times its file, as measured with 150,000
// tokens in 12 MiB, and Go needs a little to start with.
const (
	tokenizerFactor = 12
	startRoom       = 32 << 20 // bytes
)

// hostAlignment is that of weights which the host reads in place, in bytes.
const hostAlignment = 4

// weightUse is what a checkpoint's weights take of the host's memory, in bytes.
type weightUse struct {
	resident int64 // pages of mapped files, once every weight has been read
	unmapped int64 // files that are not mapped yet
	copied   int64 // weights that the host cannot read in place
}

// useOf is what the weights of an open checkpoint take.
func useOf(c *weights.Checkpoint) weightUse {
	copied := c.Unaligned(hostAlignment)
	return weightUse{resident: max(0, c.Mapped()-copied), copied: copied}
}

// share is how much of a limit the plan may deal out, in bytes. Half of the
// machine's free memory is left to other programs and to the weights' pages, which
// the kernel may drop; a cgroup has to hold these beside all else.
func share(l memlimit.Limit, w weightUse) int64 {
	switch l.Kind {
	case memlimit.Cgroup:
		return l.Left - w.resident - w.copied - programRoom
	case memlimit.AddressSpace:
		return l.Left - w.unmapped - w.copied - spaceRoom
	case memlimit.Data:
		return l.Left - w.copied - dataRoom
	}
	return l.Left/2 - w.copied
}

// budget is how many bytes a plan may deal out, and the limit that says so.
type budget struct {
	bytes int64
	limit memlimit.Limit
	use   weightUse
	hard  int64 // bytes that cgroups and rlimits leave; unlimited without any
}

// hostBudget is the least share of the limits; the first is the machine's.
func hostBudget(list []memlimit.Limit, w weightUse) budget {
	b := budget{bytes: unlimited, use: w, hard: unlimited}
	for _, l := range list {
		n := max(0, share(l, w))
		if n < b.bytes {
			b.bytes, b.limit = n, l
		}
		if l.Kind != memlimit.Machine {
			b.hard = min(b.hard, n)
		}
	}
	return b
}

// describeLimit names a limit and what is left of it.
func describeLimit(l memlimit.Limit) string {
	text := fmt.Sprintf("%s of %s", l.Name, gib(l.Bound))
	if l.Where != "" {
		text += " in " + l.Where
	}
	return fmt.Sprintf("%s, of which %s are left", text, gib(l.Left))
}

// String says which limit binds, and what is taken of it before the plan.
func (b budget) String() string {
	taken, room := b.use.copied, int64(dataRoom)
	switch b.limit.Kind {
	case memlimit.Machine:
		return describeLimit(b.limit) + "; half of that is for other programs and the weights' pages"
	case memlimit.Cgroup:
		taken, room = taken+b.use.resident, programRoom
	case memlimit.AddressSpace:
		taken, room = taken+b.use.unmapped, spaceRoom
	}
	text := fmt.Sprintf("%s; the program itself needs %s of that", describeLimit(b.limit), gib(room))
	if taken > 0 {
		text += " and the weights " + gib(taken)
	}
	return text
}

// explain adds the binding limit to the error of a plan that does not fit.
func (b budget) explain(err error) error {
	if !errors.Is(err, config.ErrNoRoom) || b.limit.Name == "" {
		return err
	}
	next := "raise it"
	if b.limit.Kind == memlimit.Machine {
		next = "end other programs"
	}
	return fmt.Errorf("%w; the bound is %v: %s or lower what is asked for", err, b, next)
}

// budget is what the plan may deal out; a GPU's budget has no limit
// to name.
func (h hardware) budget(w weightUse) (budget, error) {
	if h.available != nil {
		bytes, err := h.available()
		return budget{bytes: bytes, hard: unlimited}, err
	}
	list, err := h.limits()
	return hostBudget(list, w), err
}

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
				config.ErrNoRoom, gib(needs), describeLimit(l))
		}
	}
	return nil
}

// cannotServe is err, which the operator can mend, of the model of that name.
// Memory that the system refused is told apart, with the limits that there are.
func cannotServe(name string, err error) error {
	if !errors.Is(err, syscall.ENOMEM) {
		return config.Refuse(config.ErrConfig, "the model in %s cannot be served: %w", name, err)
	}
	list, _ := memlimit.Here() // without them the system's word has to do
	text := ""
	for _, l := range list[min(1, len(list)):] {
		text += "; " + describeLimit(l)
	}
	return config.Refuse(config.ErrConfig, "%w: the model in %s cannot be loaded: %w%s: raise the limit, or serve a smaller model",
		config.ErrNoRoom, name, err, text)
}

// boundHeap has Go collect garbage in time to stay within the cgroup and rlimits,
// unless the environment says when: the heap may grow by the program's own room
// and by what the plan leaves.
func (l prepared) boundHeap() {
	if l.heapRoom < unlimited/2 && os.Getenv("GOMEMLIMIT") == "" {
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
func (h hardware) noMemory(name string, err error) error {
	if h.available == nil && errors.Is(err, device.ErrOutOfMemory) {
		return cannotServe(name, err)
	}
	return err
}
