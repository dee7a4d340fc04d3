package plan

import (
	"errors"
	"fmt"

	"reel/generator/internal/config"
	"reel/generator/internal/memlimit"
	"reel/generator/internal/weights"
)

// Bytes that the program takes beside what the plan counts, after the plan was
// made: 4 MiB of an idle generator's heap, and the texts and frames of clients. Go
// reserves address space for its heap 64 MiB at a time.
const (
	ProgramRoom = 64 << 20  // resident
	DataRoom    = 96 << 20  // of private mappings
	SpaceRoom   = 128 << 20 // of address space
)

// hostAlignment is that of weights which the host reads in place, in bytes.
const hostAlignment = 4

// WeightUse is what a checkpoint's weights take of the host's memory, in bytes.
type WeightUse struct {
	Resident int64 // pages of mapped files, once every weight has been read
	Unmapped int64 // files that are not mapped yet
	Copied   int64 // weights that the host cannot read in place
}

// UseOf is what the weights of an open checkpoint take.
func UseOf(c *weights.Checkpoint) WeightUse {
	copied := c.Unaligned(hostAlignment)
	return WeightUse{Resident: max(0, c.Mapped()-copied), Copied: copied}
}

// share is how much of a limit the plan may deal out, in bytes. Half of the
// machine's free memory is left to other programs and to the weights' pages, which
// the kernel may drop; a cgroup has to hold these beside all else.
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

// Budget is how many bytes a plan may deal out, and the limit that says so.
type Budget struct {
	Bytes int64
	limit memlimit.Limit
	use   WeightUse
	Hard  int64 // bytes that cgroups and rlimits leave; unlimited without any
}

// HostBudget is the least share of the limits; the first is the machine's.
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

// DescribeLimit names a limit and what is left of it.
func DescribeLimit(l memlimit.Limit) string {
	text := fmt.Sprintf("%s of %s", l.Name, GiB(l.Bound))
	if l.Where != "" {
		text += " in " + l.Where
	}
	return fmt.Sprintf("%s, of which %s are left", text, GiB(l.Left))
}

// String says which limit binds, and what is taken of it before the plan.
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
	text := fmt.Sprintf("%s; the program itself needs %s of that", DescribeLimit(b.limit), GiB(room))
	if taken > 0 {
		text += " and the weights " + GiB(taken)
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
	return fmt.Errorf("%w; the bound is %v: %s or lower what is asked for", err, b, next)
}
