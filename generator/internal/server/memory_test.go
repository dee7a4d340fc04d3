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

// heapBytes returns the size of the live heap.
func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// residentBytes returns the process's resident memory without garbage. It includes large
// frames, which are not on the heap.
func residentBytes() int64 {
	debug.FreeOSMemory()
	return statusField("VmRSS")
}

// wantMemory checks that do takes less than memoryBound: on the heap after it, and at the
// peak of the process's resident memory.
func wantMemory(t *testing.T, do func()) {
	t.Helper()
	before := heapBytes()
	debug.FreeOSMemory()
	resident, counted := resetPeak()
	do()
	if peak := statusField("VmHWM"); counted && !raceEnabled && peak-resident > memoryBound {
		t.Errorf("the peak was %.1f MiB above what was there", float64(peak-resident)/(1<<20))
	}
	if kept := heapBytes() - before; kept > memoryBound {
		t.Errorf("%.1f MiB are kept", float64(kept)/(1<<20))
	}
}

// resetPeak sets the peak of resident memory to its present value, which it returns. ok is
// false if the kernel does not allow it.
func resetPeak() (resident int64, ok bool) {
	err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	return statusField("VmRSS"), err == nil
}

// statusField returns a field of /proc/self/status, which has kB, in bytes.
func statusField(name string) int64 {
	all, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(all), name+":")
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.ParseInt(value, 10, 64)
	return n << 10
}
