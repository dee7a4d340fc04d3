package plan

import (
	"fmt"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/memlimit"
)

// Beside a GPU the host tier takes by default at most one part of hostCacheShare of the memory that the limits
// leave, and at most the pages of hostCachePools KV pools. A tier smaller than leastHostCache is left out.
const (
	hostCacheShare = 4
	hostCachePools = 2
	leastHostCache = 256 << 20
)

// hostCache returns the bytes of the host tier beside a GPU with a KV pool of that many bytes. An explicit size is
// bounded by the memory that the limits leave.
func (p Planner) hostCache(pool, page int64) int64 {
	left := pinnable(p.Limits)
	if n := p.Options.HostCache; n != config.AutoHostCache {
		return wholePages(min(n, left), page)
	}
	n := wholePages(min(left/hostCacheShare, hostCachePools*pool), page)
	if n < leastHostCache || len(p.Limits) == 0 {
		return 0
	}
	return n
}

// pinnable returns the bytes that limits leave to pinned memory, without the room of the program itself. A driver
// maps pinned memory shared, so limits of private data do not count it.
func pinnable(limits []memlimit.Limit) int64 {
	left := Unlimited
	for _, l := range limits {
		switch l.Kind {
		case memlimit.Machine, memlimit.Cgroup:
			left = min(left, l.Left-ProgramRoom)
		case memlimit.AddressSpace:
			left = min(left, l.Left-SpaceRoom)
		}
	}
	return max(0, left)
}

// wholePages rounds bytes down to whole pages.
func wholePages(bytes, page int64) int64 { return bytes / page * page }

// hostCacheFits refuses an explicit size that a limit can never hold.
func (p Planner) hostCacheFits() error {
	for _, l := range p.Limits {
		if l.Kind != memlimit.Data && p.Options.HostCache > l.Bound {
			return fmt.Errorf("--host-cache asks for %s, and %s is %s: lower it, or leave it at auto",
				Size(p.Options.HostCache), l.Name, Size(l.Bound))
		}
	}
	return nil
}

// HostCacheCut returns a line that says that the host tier beside a GPU gets less than --host-cache asks for, or none.
func (p Planner) HostCacheCut(s Sizes) []string {
	if p.Options.HostCache < s.HostCache+s.hostPage {
		return nil
	}
	return []string{fmt.Sprintf("the host cache gets %s of the %s that --host-cache asks for: the machine and its "+
		"limits leave no more", Size(s.HostCache), Size(p.Options.HostCache))}
}

// smallerHostCache returns the largest host tier, in whole MiB, with which a plan that s does not serve fits on the
// host; "" if none does.
func (p Planner) smallerHostCache(s Sizes, budget int64) string {
	serves := func(mib int64) bool {
		p.Options.HostCache = mib << 20
		return p.afforded(s.context, s.batch, budget).Serves()
	}
	if s.hostCacheHere == 0 || !serves(0) {
		return ""
	}
	return fmt.Sprintf("%dMiB", largest(int(s.hostCacheHere>>20), func(mib int) bool { return serves(int64(mib)) }))
}
