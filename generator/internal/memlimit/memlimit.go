// Package memlimit finds the bounds on this process's memory: the machine's free memory, the
// limits of its cgroup and the cgroups above, and rlimits.
package memlimit

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kind is the kind of memory that a limit counts.
type Kind int

// Kinds of limits.
const (
	Machine      Kind = iota // free memory, shared with other programs
	Cgroup                   // resident memory, including resident pages of mapped files
	AddressSpace             // all mappings, also untouched ones
	Data                     // private writable mappings
)

// Limit bounds the memory that this process may still take.
type Limit struct {
	Kind  Kind
	Name  string // for a message, as in "the cgroup's memory.max"
	Where string // the cgroup's directory; empty for the other kinds
	Bound int64  // bytes; the machine's is all of its memory
	Left  int64  // bytes of the bound that are free or can be reclaimed, at least 0
}

// unlimited is the smallest number of bytes that counts as no limit: cgroup v1 has 2^63 less
// a page.
const unlimited = int64(1) << 60

// Here returns the limits of this process.
func Here() ([]Limit, error) {
	return read(os.DirFS("/"), func(resource int) (uint64, error) {
		var r unix.Rlimit
		err := unix.Getrlimit(resource, &r)
		return r.Cur, err
	})
}

// read returns the limits of the process that proc/self describes, the machine's first. It
// returns an error if the machine's free memory is not known. A cgroup or an rlimit that
// cannot be read is left out.
func read(root fs.FS, rlimit func(resource int) (uint64, error)) ([]Limit, error) {
	machine, err := readMachine(root)
	if err != nil {
		return nil, err
	}
	list := append([]Limit{machine}, cgroups(root)...)
	status := readFields(root, "proc/self/status")
	for _, r := range []struct {
		resource    int
		kind        Kind
		name, taken string
	}{
		{unix.RLIMIT_AS, AddressSpace, "the limit of address space (ulimit -v)", "VmSize"},
		{unix.RLIMIT_DATA, Data, "the limit of data (ulimit -d)", "VmData"},
	} {
		bound, err := rlimit(r.resource)
		if err == nil && bound < uint64(unlimited) {
			list = append(list, newLimit(r.kind, r.name, "", int64(bound), status[r.taken]))
		}
	}
	return list, nil
}

func newLimit(kind Kind, name, where string, bound, taken int64) Limit {
	return Limit{kind, name, where, bound, max(0, bound-max(0, taken))}
}

func readMachine(root fs.FS) (Limit, error) {
	info := readFields(root, "proc/meminfo")
	free, ok := info["MemAvailable"]
	if !ok {
		return Limit{}, fmt.Errorf("free memory is not known: /proc/meminfo has no MemAvailable")
	}
	return Limit{Kind: Machine, Name: "the machine's memory", Bound: info["MemTotal"], Left: free}, nil
}

// readFields returns the numbers in a file with lines such as "MemTotal: 12 kB" or
// "inactive_file 12", in bytes. It skips other lines.
func readFields(root fs.FS, name string) map[string]int64 {
	fields := map[string]int64{}
	text, _ := fs.ReadFile(root, name) // a missing file has no fields
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		n, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			continue
		}
		if len(words) == 3 && words[2] == "kB" {
			if n > math.MaxInt64>>10 {
				continue
			}
			n <<= 10
		}
		fields[strings.TrimSuffix(words[0], ":")] = n
	}
	return fields
}
