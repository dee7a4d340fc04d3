package memlimit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// tree returns the files of a fake machine with 1000 MiB of free memory.
func tree(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{
		"proc/meminfo": {Data: []byte("MemTotal:  2048000 kB\nMemFree: 9 kB\n" +
			"MemAvailable:   1024000 kB\nHugePages_Total: 0\n")},
		"proc/self/status": {Data: []byte("Name:\tgen\nVmSize:\t  307200 kB\nVmData:\t  102400 kB\n")},
	}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

// infinite is the rlimit function of a process without rlimits.
func infinite(int) (uint64, error) { return ^uint64(0), nil }

const (
	mount2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mount1 = "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n" +
		"34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
)

// The cases are cgroups as kernels, containers and systemd lay them out.
func TestCgroups(t *testing.T) {
	bytesOf := func(n int) string { return fmt.Sprintln(n * mib) }
	for name, c := range map[string]struct {
		files map[string]string
		want  []string // "name where bound left", in MiB
	}{
		"none": {nil, nil},
		"v2 in a service, nested": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/reel.service\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/system.slice/reel.service/memory.max":     bytesOf(512),
			"sys/fs/cgroup/system.slice/reel.service/memory.high":    "max\n",
			"sys/fs/cgroup/system.slice/reel.service/memory.current": bytesOf(200),
			"sys/fs/cgroup/system.slice/reel.service/memory.stat": "file 100\n" +
				fmt.Sprintf("inactive_file %d\nactive_file %d\nslab_reclaimable %d\n", 50*mib, 30*mib, 20*mib),
			"sys/fs/cgroup/system.slice/memory.max":     "max\n",
			"sys/fs/cgroup/system.slice/memory.high":    bytesOf(300),
			"sys/fs/cgroup/system.slice/memory.current": bytesOf(250),
		}, []string{
			"the cgroup's memory.max /sys/fs/cgroup/system.slice/reel.service 512 412",
			"the cgroup's memory.high /sys/fs/cgroup/system.slice 300 50"}},
		"v2 in a container with a cgroup namespace": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/memory.max": bytesOf(256), "sys/fs/cgroup/memory.current": bytesOf(300),
		}, []string{"the cgroup's memory.max /sys/fs/cgroup 256 0"}},
		"v2, the host's path with the container's mount": {map[string]string{
			"proc/self/cgroup":         "0::/docker/abc\n",
			"proc/self/mountinfo":      strings.Replace(mount2, " / /sys", " /docker/abc /sys", 1),
			"sys/fs/cgroup/memory.max": bytesOf(256), "sys/fs/cgroup/memory.current": bytesOf(56),
		}, []string{"the cgroup's memory.max /sys/fs/cgroup 256 200"}},
		"v2, only a part of the path is mounted": {map[string]string{
			"proc/self/cgroup": "0::/here/elsewhere/deep\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/here/memory.max": bytesOf(256),
		}, []string{"the cgroup's memory.max /sys/fs/cgroup/here 256 256"}},
		"v2, a path above the namespace's root": {map[string]string{
			"proc/self/cgroup": "0::/../../elsewhere\n", "proc/self/mountinfo": mount2,
			"sys/fs/cgroup/memory.max": bytesOf(256),
		}, []string{"the cgroup's memory.max /sys/fs/cgroup 256 256"}},
		"v1": {map[string]string{
			"proc/self/cgroup": "5:devices:/\n4:cpu,memory:/a/b\n0::/\n", "proc/self/mountinfo": mount1,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": bytesOf(400),
			"sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": bytesOf(150),
			"sys/fs/cgroup/memory/a/b/memory.stat": fmt.Sprintf("inactive_file 1\ntotal_inactive_file %d\n"+
				"total_active_file %d\nhierarchical_memory_limit %d\n", 30*mib, 20*mib, 400*mib),
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
		}, []string{"the cgroup's memory.limit_in_bytes /sys/fs/cgroup/memory/a/b 400 300"}},
		"v1 in a container, below a limit above the mount": {map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/abc\n",
			"proc/self/mountinfo":                        strings.ReplaceAll(mount1, " / /sys", " /docker/abc /sys"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": bytesOf(100),
			"sys/fs/cgroup/memory/memory.stat":           fmt.Sprintf("hierarchical_memory_limit %d\n", 300*mib),
		}, []string{"memory.limit_in_bytes of a cgroup above /sys/fs/cgroup/memory 300 200"}},
		"hybrid: v1 limits memory, v2 only groups services": {map[string]string{
			"proc/self/cgroup": "4:memory:/s\n0::/s\n",
			"proc/self/mountinfo": mount1 +
				strings.Replace(mount2, "cgroup rw", "cgroup/unified rw", 1),
			"sys/fs/cgroup/memory/s/memory.limit_in_bytes":    bytesOf(100),
			"sys/fs/cgroup/memory/s/memory.usage_in_bytes":    bytesOf(1),
			"sys/fs/cgroup/unified/s/cgroup.procs":            "1\n",
			"sys/fs/cgroup/unified/cgroup.max.descendants":    "max\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":      "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.kmem.usage_in_bytes": "1\n",
		}, []string{"the cgroup's memory.limit_in_bytes /sys/fs/cgroup/memory/s 100 99"}},
		"mounted elsewhere, with a blank": {map[string]string{
			"proc/self/cgroup":     "0::/s\n",
			"proc/self/mountinfo":  strings.Replace(mount2, "/sys/fs/cgroup", `/mnt/c\040g`, 1),
			"mnt/c g/s/memory.max": bytesOf(7),
		}, []string{"the cgroup's memory.max /mnt/c g/s 7 7"}},
		"damaged": {map[string]string{
			"proc/self/cgroup":         "0::\n::\n4\n\n",
			"proc/self/mountinfo":      "1 2 3\n - \n 1 2 3 4 5 - cgroup2\n" + mount2,
			"sys/fs/cgroup/memory.max": "-5\n", "sys/fs/cgroup/memory.high": "many\n",
		}, nil},
	} {
		list, err := read(tree(c.files), infinite)
		if err != nil || list[0] != (Limit{Machine, "the machine's memory", "", 2000 * mib, 1000 * mib}) {
			t.Fatalf("%s: %+v, %v", name, list, err)
		}
		var got []string
		for _, l := range list[1:] {
			if l.Kind != Cgroup {
				t.Errorf("%s: %+v is no cgroup's", name, l)
			}
			got = append(got, fmt.Sprintf("%s %s %d %d", l.Name, l.Where, l.Bound/mib, l.Left/mib))
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestRlimits(t *testing.T) {
	list, err := read(tree(nil), func(resource int) (uint64, error) {
		switch resource {
		case unix.RLIMIT_AS:
			return 1024 * mib, nil
		case unix.RLIMIT_DATA:
			return 64 * mib, nil // less than is taken
		}
		return 0, errors.New("another")
	})
	want := []Limit{{AddressSpace, "the limit of address space (ulimit -v)", "", 1024 * mib, 724 * mib},
		{Data, "the limit of data (ulimit -d)", "", 64 * mib, 0}}
	if err != nil || len(list) != 3 || list[1] != want[0] || list[2] != want[1] {
		t.Errorf("%+v, %v", list, err)
	}
	unknown := func(int) (uint64, error) { return 1, errors.New("no") }
	if list, err := read(tree(nil), unknown); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestUnknownMachine(t *testing.T) {
	for _, bad := range []string{"", "MemTotal: 9 kB\n", "MemAvailable: many kB\n", "MemAvailable:\n",
		"MemAvailable: 9223372036854775807 kB\n"} {
		root := tree(map[string]string{"proc/meminfo": bad})
		if l, err := read(root, infinite); err == nil {
			t.Errorf("%q: %+v", bad, l)
		}
	}
}

// This machine has some free memory.
func TestHere(t *testing.T) {
	list, err := Here()
	if err != nil || list[0].Left <= 0 || list[0].Left > list[0].Bound {
		t.Errorf("%+v, %v", list, err)
	}
}
