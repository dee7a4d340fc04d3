package doctor

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// serviceGroup is the group of the users that may connect to the service.
const serviceGroup = "reel"

// membership checks whether this user may connect to the service.
func (s *System) membership() Finding {
	isService := func(fields []string) bool { return fields[0] == serviceGroup }
	switch {
	case !slices.ContainsFunc(s.database("etc/group"), isService):
		return failure("group", "there is no group "+serviceGroup,
			"sudo systemd-sysusers, after installing systemd/reel.sysusers")
	case s.UID == 0 || slices.Contains(s.Groups, serviceGroup):
		return ok("group", s.User+" may connect to the service")
	}
	return warning("group", s.User+" is not in the group "+serviceGroup+", whose members may connect to the service",
		"sudo usermod -aG "+serviceGroup+" "+s.User+", and log in again")
}

// groupOf returns the name of a file's group, or "".
func (s *System) groupOf(info os.FileInfo) string {
	gid, known := groupID(info)
	if !known {
		return ""
	}
	for _, g := range s.database("etc/group") {
		if len(g) > 2 && g[2] == gid {
			return g[0]
		}
	}
	return ""
}

// groupID returns the number of a file's group.
func groupID(info fs.FileInfo) (gid string, known bool) {
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	return strconv.FormatUint(uint64(sys.Gid), 10), true
}

// database returns the lines of a file such as /etc/group, split at the colons.
func (s *System) database(name string) (list [][]string) {
	text, err := os.ReadFile(filepath.Join(s.Root, name))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		list = append(list, strings.Split(strings.TrimSpace(line), ":"))
	}
	return list
}
