//go:build linux

// Package devices runs a program with only the device nodes that a systemd unit allows, on a machine that may have no
// systemd. It records the nodes that the program and its children open, and refuses those that the unit does not
// list.
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

// Node is a device node with the numbers by which the kernel identifies it.
type Node struct {
	Path         string // by which it was opened
	Block        bool
	Major, Minor uint32
}

// Rule is the value of a line DeviceAllow=, and the nodes that it allows on this machine.
type Rule struct {
	Text   string // a pattern as in the unit, such as char-nvidia
	majors []uint32
	node   *Node // of a rule that names a path; nil if the path does not exist
}

// pseudo are the nodes that DevicePolicy=closed always allows, from systemd.resource-control(5).
var pseudo = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
	"/dev/ptmx", "/dev/pts/ptmx"}

// Pseudo reports whether every service may open the node.
func (n Node) Pseudo() bool {
	return slices.Contains(pseudo, n.Path) || strings.HasPrefix(n.Path, "/dev/pts/")
}

// ParseUnit returns a unit's rules. numbers is the text of /proc/devices, which names major numbers. It is an error if
// the unit lacks DevicePolicy=closed, or if a rule's access is not rw.
func ParseUnit(unit, numbers []byte) (rules []Rule, err error) {
	policy := ""
	for lines := bufio.NewScanner(bytes.NewReader(unit)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		switch key {
		case "DevicePolicy":
			policy = value
		case "DeviceAllow":
			pattern, access, _ := strings.Cut(value, " ")
			if access != "rw" {
				return nil, fmt.Errorf("devices: DeviceAllow=%s: only rw is supported", value)
			}
			rules = append(rules, parseRule(pattern, numbers))
		}
	}
	if policy != "closed" {
		return nil, fmt.Errorf("devices: DevicePolicy is %q, not closed", policy)
	}
	return rules, nil
}

// parseRule makes a rule of a DeviceAllow= value without its access.
func parseRule(pattern string, numbers []byte) Rule {
	r := Rule{Text: pattern}
	if name, ok := strings.CutPrefix(pattern, "char-"); ok {
		r.majors = majors(name, numbers)
	} else if n, ok := nodeAt(pattern); ok {
		r.node = &n
	}
	return r
}

// majors returns the major numbers of character devices with a name that matches pattern.
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

// Allows reports whether the rule allows n.
func (r Rule) Allows(n Node) bool {
	if n.Block {
		return false
	}
	return slices.Contains(r.majors, n.Major) ||
		r.node != nil && r.node.Major == n.Major && r.node.Minor == n.Minor
}

// Here reports whether this machine has a node that the rule could allow.
func (r Rule) Here() bool { return r.node != nil || len(r.majors) > 0 }

// String returns the rule and its device numbers on this machine.
func (r Rule) String() string {
	switch {
	case r.node != nil:
		return fmt.Sprintf("%s (%d:%d)", r.Text, r.node.Major, r.node.Minor)
	case len(r.majors) > 0:
		return fmt.Sprintf("%s %v", r.Text, r.majors)
	}
	return r.Text + " (not on this machine)"
}

// nodeAt returns the device node at a path, after following links; false if there is none.
func nodeAt(at string) (Node, bool) {
	var s unix.Stat_t
	if err := unix.Stat(at, &s); err != nil {
		return Node{}, false
	}
	kind := s.Mode & unix.S_IFMT
	n := Node{Path: at, Block: kind == unix.S_IFBLK, Major: unix.Major(s.Rdev), Minor: unix.Minor(s.Rdev)}
	return n, n.Block || kind == unix.S_IFCHR
}
