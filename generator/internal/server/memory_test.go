package server

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

const memoryBound = 16 << 20 // bytes that one bad input may cost

// memory is what the heap holds, garbage apart.
func memory() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// resident is what the process has of memory, garbage apart: large frames are
// not on the heap.
func resident() int64 {
	debug.FreeOSMemory()
	return statusField("VmRSS")
}

// wantMemory checks that do costs less than memoryBound, both in what is left
// of it and at its peak, as the kernel counted the process's resident memory.
func wantMemory(t *testing.T, do func()) {
	t.Helper()
	before := memory()
	debug.FreeOSMemory()
	resident, counted := resetPeak()
	do()
	if peak := statusField("VmHWM"); counted && !raceEnabled && peak-resident > memoryBound {
		t.Errorf("the peak was %.1f MiB above what was there", float64(peak-resident)/(1<<20))
	}
	if kept := memory() - before; kept > memoryBound {
		t.Errorf("%.1f MiB are kept", float64(kept)/(1<<20))
	}
}

// resetPeak sets the peak of resident memory to what is resident now, and
// returns that. Where the kernel does not allow it, it is false.
func resetPeak() (resident int64, ok bool) {
	err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	return statusField("VmRSS"), err == nil
}

// statusField is a field of /proc/self/status that is in kB, in bytes.
func statusField(name string) int64 {
	all, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(all), name+":")
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.ParseInt(value, 10, 64)
	return n << 10
}
