package device

import (
	"runtime"
	"testing"
	"unsafe"
)

// Large allocations do not grow Go's heap, on which the collector bases the amount of
// garbage that it leaves.
func TestLargeMemoryIsNotOnTheHeap(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		heap  bool
	}{{mappedFrom - 1, true}, {64 << 20, false}} {
		h := NewHost(HostOptions{})
		before := heap()
		b, err := h.Alloc(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if grown := heap()-before >= c.bytes; grown != c.heap {
			t.Errorf("%d bytes: on the heap is %t", c.bytes, grown)
		}
		mem := h.Bytes(b)
		if mem[0] != 0 || mem[c.bytes-1] != 0 || uintptr(unsafe.Pointer(&mem[0]))%hostAlignment != 0 {
			t.Errorf("%d bytes are not zeroed and aligned", c.bytes)
		}
		mem[0], mem[c.bytes-1] = 1, 1
		if err := h.Free(b); err != nil {
			t.Error(err)
		}
		if len(h.mapped) != 0 {
			t.Errorf("%d bytes: freed memory is still mapped", c.bytes)
		}
		h.Close()
	}
}

// heap returns the size of Go's heap without garbage.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
