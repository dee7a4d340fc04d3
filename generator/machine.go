//go:build linux

package main

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"reel/generator/internal/model"
	"reel/protocol"
)

// hostMachine is this machine's processors, and the memory of this process.
func hostMachine() protocol.Machine {
	m := protocol.Machine{Name: "unknown processor"}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		m.Name = procField(f, "model name", m.Name)
		f.Close()
	}
	m.MemoryUsed, m.MemoryTotal = procKiB("/proc/self/status", "VmRSS"), procKiB("/proc/meminfo", "MemTotal")
	return m
}

// procKiB is a field of a file such as /proc/meminfo that is in kB, in bytes; 0
// where it is not there.
func procKiB(path, name string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	number, _, _ := strings.Cut(procField(f, name, ""), " ")
	kib, _ := strconv.ParseInt(number, 10, 64) // what is no number is 0
	return kib << 10
}

// procField is the first value of a field in a file such as /proc/cpuinfo, or otherwise.
func procField(r io.Reader, name, otherwise string) string {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		key, value, found := strings.Cut(lines.Text(), ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return otherwise
}

// shapeOf is a model's shape as status tells it.
func shapeOf(m *model.Model) protocol.Shape {
	c := m.Config
	return protocol.Shape{Layers: c.Layers, Hidden: c.Hidden, Inner: c.Inner, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		WeightBytes: m.WeightBytes(), StepBytes: m.StepBytes()}
}

// planned is what the plan takes of the device's memory, by kind. Weights that are
// read where the file is mapped count as the pages that they come to be.
func (l prepared) planned() []protocol.MemoryUse {
	s, weights := l.sizes, l.sizes.WeightBytes()
	if !l.hardware.Packed {
		weights += l.model.WeightBytes()
	}
	list := []protocol.MemoryUse{{Kind: protocol.MemoryWeights, Planned: weights}, {Kind: protocol.MemoryKV, Planned: s.KVPool()},
		{Kind: protocol.MemoryArena, Planned: s.Arena}, {Kind: protocol.MemoryGraphs, Planned: s.Graphs}}
	if s.Overhead > 0 { // a GPU's; a process has no such part
		list = append(list, protocol.MemoryUse{Kind: protocol.MemoryOther, Planned: s.Overhead})
	}
	return list
}
