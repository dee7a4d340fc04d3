package plan

import (
	"errors"
	"fmt"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/memlimit"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
)

// Bytes left to the program for the memory that the plan does not count: the heap, 4 MiB
// in an idle generator, and the texts and frames of clients. Go reserves address space
// for its heap in blocks of 64 MiB.
const (
	ProgramRoom = 64 << 20  // resident
	DataRoom    = 96 << 20  // of private mappings
	SpaceRoom   = 128 << 20 // of address space
)

// hostAlignment is the alignment, in bytes, of weights that the host can read in place.
const hostAlignment = 4

// WeightUse is the host memory that a checkpoint's weights take, in bytes.
type WeightUse struct {
	Resident int64 // pages of mapped files, once every weight has been read
	Unmapped int64 // files that are not mapped yet
	Copied   int64 // weights that the host cannot read in place
	Stacked  int64 // further ones, which several simulated GPUs cannot
	// Formats are those of the matrices by tensor; nil: there are no weights yet, only a config.
	Formats map[string]kernels.DType
	// Ordered is a matrix in activation order, which a GPU has no kernels for; "": there is none.
	Ordered string
	// Draft is the draft model, whose weights count above; nil: there is none.
	Draft *Draft
}

// UseOf returns the use of an open checkpoint, whose files are mapped.
func UseOf(c *weights.Checkpoint) WeightUse {
	copied := c.Unaligned(hostAlignment)
	return WeightUse{Resident: max(0, c.Mapped()-copied), Copied: copied}
}

// On returns what the weights use where a number of GPUs share them.
func (w WeightUse) On(ranks int) WeightUse {
	if ranks > 1 {
		w.Copied, w.Resident, w.Stacked = w.Copied+w.Stacked, max(0, w.Resident-w.Stacked), 0
	}
	return w
}

// share returns the bytes of a limit that the plan may allocate. Half of the machine's free
// memory is left to other programs and to the weights' pages, which the kernel may drop. A
// cgroup has to hold these pages too, because otherwise every step reads them from disk.
func share(l memlimit.Limit, w WeightUse) int64 {
	switch l.Kind {
	case memlimit.Cgroup:
		return l.Left - w.Resident - w.Copied - ProgramRoom
	case memlimit.AddressSpace:
		return l.Left - w.Unmapped - w.Copied - SpaceRoom
	case memlimit.Data:
		return l.Left - w.Copied - DataRoom
	}
	return l.Left/2 - w.Copied
}

// Budget is the bytes that a plan may allocate, and the limit that binds.
type Budget struct {
	Bytes int64
	limit memlimit.Limit
	use   WeightUse
	Hard  int64 // bytes that cgroups and rlimits leave; Unlimited without any
}

// HostBudget returns the least share of the limits in list.
func HostBudget(list []memlimit.Limit, w WeightUse) Budget {
	b := Budget{Bytes: Unlimited, use: w, Hard: Unlimited}
	for _, l := range list {
		n := max(0, share(l, w))
		if n < b.Bytes {
			b.Bytes, b.limit = n, l
		}
		if l.Kind != memlimit.Machine {
			b.Hard = min(b.Hard, n)
		}
	}
	return b
}

// DescribeLimit returns a limit's name, its bound and the bytes left of it.
func DescribeLimit(l memlimit.Limit) string {
	text := fmt.Sprintf("%s of %s", l.Name, Size(l.Bound))
	if l.Where != "" {
		text += " in " + l.Where
	}
	return fmt.Sprintf("%s, of which %s are left", text, Size(l.Left))
}

// String describes the limit that binds, and the parts of it that the plan may not use.
func (b Budget) String() string {
	taken, room := b.use.Copied, int64(DataRoom)
	switch b.limit.Kind {
	case memlimit.Machine:
		return DescribeLimit(b.limit) + "; half of that is for other programs and the weights' pages"
	case memlimit.Cgroup:
		taken, room = taken+b.use.Resident, ProgramRoom
	case memlimit.AddressSpace:
		taken, room = taken+b.use.Unmapped, SpaceRoom
	}
	text := fmt.Sprintf("%s; the program itself needs %s of that", DescribeLimit(b.limit), Size(room))
	if taken > 0 {
		text += " and the weights " + Size(taken)
	}
	return text
}

// Explain adds the binding limit to the error of a plan that does not fit.
func (b Budget) Explain(err error) error {
	if !errors.Is(err, config.ErrNoRoom) || b.limit.Name == "" {
		return err
	}
	next := "raise it"
	if b.limit.Kind == memlimit.Machine {
		next = "end other programs"
	}
	return fmt.Errorf("%w; the bound is %v: %s, or ask for less", err, b, next)
}
