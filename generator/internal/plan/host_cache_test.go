package plan

import (
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/memlimit"
)

// planned plans the host tier of a model beside a GPU of 24 GiB, or on the host within 4 GiB.
func planned(t *testing.T, profile Profile, size int64, limits ...memlimit.Limit) (Planner, Sizes) {
	t.Helper()
	p := Planner{Config: phi, Profile: profile, Limits: limits, Options: config.Options{MaxBatch: 2, HostCache: size}}
	budget := int64(24 << 30)
	if !profile.Packed {
		budget = 4 << 30
	}
	s, o, err := p.Plan(budget)
	if err != nil || o.HostCache != s.HostCache || s.HostCache%s.pageBytes != 0 || s.Total() > budget {
		t.Fatalf("%d of %v: %+v, %v", size, limits, s, err)
	}
	return p, s
}

// By default the tier beside a GPU is the least of a quarter of the memory that is left and two KV pools, in whole
// pages, or nothing if that is little.
func TestDefaultHostCache(t *testing.T) {
	machine := func(left int64) memlimit.Limit { return limit(memlimit.Machine, "machine", left) }
	cgroup := limit(memlimit.Cgroup, "cgroup", 4<<30)
	_, bare := planned(t, GPUProfile, 0, machine(64<<30))
	for name, c := range map[string]struct {
		limits []memlimit.Limit
		want   int64
	}{
		"two pools":                    {[]memlimit.Limit{machine(64 << 30)}, 2 * bare.KVPool()},
		"a quarter of the machine":     {[]memlimit.Limit{machine(4 << 30)}, (4<<30 - ProgramRoom) / 4},
		"a quarter of the cgroup":      {[]memlimit.Limit{machine(64 << 30), cgroup}, (4<<30 - ProgramRoom) / 4},
		"little is nothing":            {[]memlimit.Limit{machine(1<<30 + ProgramRoom - 1)}, 0},
		"an unknown machine":           {nil, 0},
		"no limit of private data":     {[]memlimit.Limit{machine(4 << 30), limit(memlimit.Data, "data", 1<<20)}, (4<<30 - ProgramRoom) / 4},
		"a limit of the address space": {[]memlimit.Limit{machine(64 << 30), limit(memlimit.AddressSpace, "as", 4<<30)}, (4<<30 - SpaceRoom) / 4},
	} {
		_, s := planned(t, GPUProfile, config.AutoHostCache, c.limits...)
		if want := wholePages(c.want, s.pageBytes); s.HostCache != want || s.Total() != bare.Total() {
			t.Errorf("%s: %s, wants %s; a total of %s, without it %s",
				name, Size(s.HostCache), Size(want), Size(s.Total()), Size(bare.Total()))
		}
	}
	if _, s := planned(t, HostProfile, config.AutoHostCache, machine(64<<30)); s.HostCache != 0 {
		t.Errorf("on the host the default is %s", Size(s.HostCache))
	}
}

// An explicit size is what is left at most, and no more than a limit can hold. On the host it is part of the budget.
func TestExplicitHostCache(t *testing.T) {
	p, s := planned(t, GPUProfile, 1<<30, roomy)
	if s.HostCache != wholePages(1<<30, s.pageBytes) || p.HostCacheCut(s) != nil {
		t.Errorf("%s of 1 GiB: %q", Size(s.HostCache), p.HostCacheCut(s))
	}
	p, s = planned(t, GPUProfile, 12<<30, roomy)
	if cut := p.HostCacheCut(s); s.HostCache != wholePages(8<<30-ProgramRoom, s.pageBytes) || len(cut) != 1 {
		t.Errorf("%s of 12 GiB, 8 GiB are left: %q", Size(s.HostCache), cut)
	}
	for _, profile := range []Profile{HostProfile, GPUProfile} {
		p := Planner{Config: phi, Profile: profile, Limits: []memlimit.Limit{roomy},
			Options: config.Options{MaxBatch: 2, HostCache: 17 << 30}}
		if _, _, err := p.Plan(24 << 30); err == nil || !strings.Contains(err.Error(), "17.00 GiB, and the machine's memory") {
			t.Errorf("%s: 17 of 16 GiB: %v", profile.kind, err)
		}
	}
	_, bare := planned(t, HostProfile, 0, roomy)
	_, s = planned(t, HostProfile, 512<<20, roomy)
	if s.HostCache != wholePages(512<<20, s.pageBytes) || s.Pages >= bare.Pages {
		t.Errorf("on the host %s leave %d pages of %d", Size(s.HostCache), s.Pages, bare.Pages)
	}
}

// On the host the advice names the largest tier that leaves one sequence.
func TestHostCacheAdvice(t *testing.T) {
	p := Planner{Config: phi, Profile: HostProfile, Limits: []memlimit.Limit{roomy},
		Options: config.Options{MaxBatch: 2, HostCache: 3 << 30}}
	_, _, err := p.Plan(4 << 30)
	if err == nil || !strings.Contains(err.Error(), "lower --host-cache to ") {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(err.Error(), "--host-cache to ")
	mib := int64(digits(strings.TrimSuffix(after, "MiB")))
	for more, fits := range map[int64]bool{0: true, 1: false} {
		p.Options.HostCache = (mib + more) << 20
		if _, _, err := p.Plan(4 << 30); (err == nil) != fits {
			t.Errorf("%d MiB: %v", mib+more, err)
		}
	}
}

// The report has the bound of files if there is a directory for them.
func TestReportHasTheCacheDirectory(t *testing.T) {
	for dir, want := range map[string]int64{"": 0, "/var/cache/reel": 3 << 30} {
		p, s := planned(t, GPUProfile, 1<<30, roomy)
		p.Options.CacheDir, p.Options.CacheDirBytes = dir, 3<<30
		var text strings.Builder
		r := reportOf(p, s, "m")
		if r.Print(&text); r.CacheDir != want || strings.Contains(text.String(), "cache directory") != (want > 0) {
			t.Errorf("%q: %d bytes, in\n%s", dir, r.CacheDir, text.String())
		}
	}
}
