package memlimit

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// hierarchy is a mounted tree of cgroups that counts memory.
type hierarchy struct {
	v2    bool
	mount string // the mount point without the leading slash, as for fs.FS
	path  string // of this process's cgroup below the mount point, or "."
}

// cgroups returns the limits of this process's cgroup and the cgroups above it, from its own
// upwards, in every mounted hierarchy.
func cgroups(root fs.FS) (list []Limit) {
	for _, h := range hierarchies(root) {
		list = append(list, h.limits(root)...)
	}
	return list
}

// hierarchies returns the mounted hierarchies, from proc/self/mountinfo, with this process's
// cgroup in each, from proc/self/cgroup.
func hierarchies(root fs.FS) (list []hierarchy) {
	v1, v2, ok := ownCgroups(root)
	if !ok {
		return nil
	}
	text, _ := fs.ReadFile(root, "proc/self/mountinfo")
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		before, after, found := strings.Cut(lines.Text(), " - ")
		mount, kind := strings.Fields(before), strings.Fields(after)
		if !found || len(mount) < 5 || len(kind) < 3 {
			continue
		}
		h := hierarchy{mount: strings.Trim(unescape(mount[4]), "/")}
		top, own := unescape(mount[3]), v1
		switch {
		case kind[0] == "cgroup2":
			h.v2, own = true, v2
		case kind[0] != "cgroup" || !slices.Contains(strings.Split(kind[2], ","), "memory"):
			continue
		}
		if own != "" && fs.ValidPath(h.mount) {
			h.path = below(root, h.mount, top, own)
			list = append(list, h)
		}
	}
	return list
}

// ownCgroups returns the paths of this process's cgroups: that of v1's memory controller, ""
// if there is none, and that of v2.
func ownCgroups(root fs.FS) (v1, v2 string, ok bool) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[0] == "0" && parts[1] == "":
			v2 = parts[2]
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			v1 = parts[2]
		}
	}
	return v1, v2, err == nil
}

// below returns the part of the path own below a mount with the root top. In a container
// either path may be the host's, so it returns the longest part that exists.
func below(root fs.FS, mount, top, own string) string {
	inside := strings.TrimPrefix(own, strings.TrimSuffix(top, "/"))
	at := path.Clean(strings.TrimLeft(inside, "/"))
	for ; at != "."; at = path.Dir(at) {
		if name := path.Join(mount, at); fs.ValidPath(name) {
			if info, err := fs.Stat(root, name); err == nil && info.IsDir() {
				break
			}
		}
	}
	return at
}

// unescape replaces mountinfo's octal escapes of white space and backslashes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// limits returns the limits of the cgroup and of those above it, up to the mount point.
func (h hierarchy) limits(root fs.FS) (list []Limit) {
	for at := h.path; ; at = path.Dir(at) {
		dir := path.Join(h.mount, at)
		if h.v2 {
			list = append(list, limitsV2(root, dir)...)
		} else {
			list = append(list, limitsV1(root, dir, at == h.path)...)
		}
		if at == "." {
			return list
		}
	}
}

// limitsV2 returns the limits of a cgroup of version 2. Page cache and reclaimable slabs do
// not count as taken; shared memory, which "file" includes, does.
func limitsV2(root fs.FS, dir string) (list []Limit) {
	stat := readFields(root, path.Join(dir, "memory.stat"))
	current, _ := readNumber(root, path.Join(dir, "memory.current"))
	taken := current - stat["inactive_file"] - stat["active_file"] - stat["slab_reclaimable"]
	for _, name := range []string{"memory.max", "memory.high"} {
		if bound, ok := readNumber(root, path.Join(dir, name)); ok {
			list = append(list, newLimit(Cgroup, "the cgroup's "+name, "/"+dir, bound, taken))
		}
	}
	return list
}

// limitsV1 returns the limits of a cgroup of version 1. The process's own cgroup also has the
// smallest limit of the cgroups above it, including those above the mount point.
func limitsV1(root fs.FS, dir string, own bool) (list []Limit) {
	const name = "memory.limit_in_bytes"
	stat := readFields(root, path.Join(dir, "memory.stat"))
	usage, _ := readNumber(root, path.Join(dir, "memory.usage_in_bytes"))
	taken := usage - stat["total_inactive_file"] - stat["total_active_file"]
	bound, limited := readNumber(root, path.Join(dir, name))
	if limited {
		list = append(list, newLimit(Cgroup, "the cgroup's "+name, "/"+dir, bound, taken))
	}
	above, known := stat["hierarchical_memory_limit"]
	if own && known && above < unlimited && (!limited || above < bound) {
		list = append(list, newLimit(Cgroup, name+" of a cgroup above", "/"+dir, above, taken))
	}
	return list
}

// readNumber reads a file with one number. ok is false for "max", for a number that is no
// limit, and for a missing file.
func readNumber(root fs.FS, name string) (n int64, ok bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n >= 0 && n < unlimited
}
