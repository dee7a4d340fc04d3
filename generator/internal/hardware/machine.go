package hardware

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"reel.internal/reel/protocol"
)

// HostMachine describes this machine's processors, and the memory of this process.
func HostMachine() protocol.Machine {
	m := protocol.Machine{Name: "unknown processor"}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		m.Name = procField(f, "model name", m.Name)
		f.Close()
	}
	m.MemoryUsed, m.MemoryTotal = procKiB("/proc/self/status", "VmRSS"), procKiB("/proc/meminfo", "MemTotal")
	return m
}

// procKiB returns in bytes a field in kB of a file such as /proc/meminfo, or 0 without it.
func procKiB(path, name string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	number, _, _ := strings.Cut(procField(f, name, ""), " ")
	kib, _ := strconv.ParseInt(number, 10, 64) // 0 if it is malformed
	return kib << 10
}

// procField returns the first value of a field in a file such as /proc/cpuinfo, or otherwise.
func procField(r io.Reader, name, otherwise string) string {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		key, value, found := strings.Cut(lines.Text(), ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return otherwise
}
