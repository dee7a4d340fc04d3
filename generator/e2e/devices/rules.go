//go:build linux

// Package devices tries a program under the device nodes that a systemd unit
// allows it, on a machine that may have no systemd: it tells which nodes the
// program and its children open, and refuses those that the unit does not list.
package devices

import (
	"bufio"
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Node is a device node by what the kernel knows it by.
type Node struct {
	Path         string // as it was opened
	Block        bool
	Major, Minor uint32
}

// Rule is a line DeviceAllow=, and what it means on this machine.
type Rule struct {
	Text   string // what the unit says, as in char-nvidia
	majors []uint32
	node   *Node // of a rule that names a path; nil where there is none
}

// pseudo are the nodes that DevicePolicy=closed leaves open, of systemd.resource-control(5).
var pseudo = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts/ptmx"}

// Pseudo tells whether every service may open the node.
func (n Node) Pseudo() bool {
	return slices.Contains(pseudo, n.Path) || strings.HasPrefix(n.Path, "/dev/pts/")
}

// ParseUnit reads a unit's rules. numbers is the text of /proc/devices, by which
// the kernel names majors. A unit that does not close its devices is an error, and
// so is a rule that does not let a node be read and written.
func ParseUnit(unit, numbers []byte) (rules []Rule, err error) {
	policy := ""
	for lines := bufio.NewScanner(bytes.NewReader(unit)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		switch key {
		case "DevicePolicy":
			policy = value
		case "DeviceAllow":
			what, rights, _ := strings.Cut(value, " ")
			if rights != "rw" {
				return nil, fmt.Errorf("devices: DeviceAllow=%s: only rw is known here", value)
			}
			rules = append(rules, parseRule(what, numbers))
		}
	}
	if policy != "closed" {
		return nil, fmt.Errorf("devices: DevicePolicy is %q, not closed", policy)
	}
	return rules, nil
}

func parseRule(what string, numbers []byte) Rule {
	r := Rule{Text: what}
	if name, ok := strings.CutPrefix(what, "char-"); ok {
		r.majors = majors(name, numbers)
	} else if n, ok := nodeAt(what); ok {
		r.node = &n
	}
	return r
}

// majors are those of the character devices whose name matches a pattern.
func majors(pattern string, numbers []byte) (list []uint32) {
	for lines := bufio.NewScanner(bytes.NewReader(numbers)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "Block devices") {
			break
		}
		words := strings.Fields(lines.Text())
		if len(words) != 2 {
			continue
		}
		number, err := strconv.ParseUint(words[0], 10, 32)
		if match, _ := path.Match(pattern, words[1]); match && err == nil {
			list = append(list, uint32(number))
		}
	}
	return list
}

// Allows tells whether the rule lets n be opened.
func (r Rule) Allows(n Node) bool {
	if n.Block {
		return false
	}
	return slices.Contains(r.majors, n.Major) || r.node != nil && r.node.Major == n.Major && r.node.Minor == n.Minor
}

// Here tells whether this machine has a node that the rule could allow.
func (r Rule) Here() bool { return r.node != nil || len(r.majors) > 0 }

// String is the rule and the numbers that it has on this machine.
func (r Rule) String() string {
	switch {
	case r.node != nil:
		return fmt.Sprintf("%s (%d:%d)", r.Text, r.node.Major, r.node.Minor)
	case len(r.majors) > 0:
		return fmt.Sprintf("%s %v", r.Text, r.majors)
	}
	return r.Text + " (not on this machine)"
}

// nodeAt is what lies at a path, links followed, where that is a device.
func nodeAt(at string) (Node, bool) {
	var s unix.Stat_t
	if err := unix.Stat(at, &s); err != nil {
		return Node{}, false
	}
	kind := s.Mode & unix.S_IFMT
	n := Node{Path: at, Block: kind == unix.S_IFBLK, Major: unix.Major(s.Rdev), Minor: unix.Minor(s.Rdev)}
	return n, n.Block || kind == unix.S_IFCHR
}
