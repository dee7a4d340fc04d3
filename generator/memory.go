//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// availableMemory is the bytes that new programs can have on this machine.
func availableMemory() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("free memory is not known: %w", err)
	}
	defer f.Close()
	return available(f)
}

// available reads the bytes that new programs can have from /proc/meminfo.
func available(meminfo io.Reader) (int64, error) {
	for lines := bufio.NewScanner(meminfo); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			var kib int64
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
				return 0, fmt.Errorf("/proc/meminfo: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no MemAvailable")
}
