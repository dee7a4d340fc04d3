package plan

import (
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/memlimit"
)

const miB = 1 << 20

// roomy is the limit of a machine with 8 GiB free.
var roomy = memlimit.Limit{Kind: memlimit.Machine, Name: "the machine's memory", Bound: 16 << 30, Left: 8 << 30}

func limit(kind memlimit.Kind, name string, left int64) memlimit.Limit {
	return memlimit.Limit{Kind: kind, Name: name, Bound: left + 100*miB, Left: left}
}

// The least limit binds, after the memory of weights and program is taken off.
func TestHostBudget(t *testing.T) {
	w := WeightUse{Resident: 100 * miB, Unmapped: 10 * miB, Copied: miB}
	const (
		half   = 4<<30 - miB // of the machine
		cgroup = 1<<30 - 101*miB - ProgramRoom
		space  = 1<<30 - 11*miB - SpaceRoom
		data   = 1<<30 - miB - DataRoom
	)
	group := func(name string, left int64) memlimit.Limit { return limit(memlimit.Cgroup, name, left) }
	for _, c := range []struct {
		limits      []memlimit.Limit
		bytes, hard int64
		binds       string
	}{
		{nil, half, Unlimited, "the machine's memory"},
		{[]memlimit.Limit{group("max", 1<<30)}, cgroup, cgroup, "max"},
		{[]memlimit.Limit{limit(memlimit.AddressSpace, "as", 1<<30)}, space, space, "as"},
		{[]memlimit.Limit{limit(memlimit.Data, "data", 1<<30)}, data, data, "data"},
		{[]memlimit.Limit{group("max", 20<<30), limit(memlimit.Data, "data", 16<<30)},
			half, data + 15<<30, "the machine's memory"},
		{[]memlimit.Limit{group("inner", 3<<30), group("outer", 1<<30), limit(memlimit.AddressSpace, "as", 2<<30)},
			cgroup, cgroup, "outer"},
		{[]memlimit.Limit{group("tiny", miB)}, 0, 0, "tiny"},
	} {
		b := HostBudget(append([]memlimit.Limit{roomy}, c.limits...), w)
		if b.Bytes != c.bytes || b.Hard != c.hard || b.limit.Name != c.binds || !strings.Contains(b.String(), c.binds) {
			t.Errorf("%+v: %d, %d of %v, wants %d, %d of %s", c.limits, b.Bytes, b.Hard, b, c.bytes, c.hard, c.binds)
		}
	}
}
