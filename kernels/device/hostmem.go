package device

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mappedFrom is the size in bytes from which memory is mapped, apart from Go's
// heap. The collector lets garbage grow as large as the heap is, so a pool of
// pages on it would let that of hostile frames grow as large as the pool.
const mappedFrom = 1 << 20

// allocate returns zeroed memory, and whether it is mapped. The system gives
// mapped memory when it is touched.
func allocate(bytes int64) (mem []byte, mapped bool) {
	if bytes < mappedFrom {
		return aligned(bytes), false
	}
	mem, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return aligned(bytes), false
	}
	return mem, true
}

// aligned returns zeroed memory of Go's heap, aligned to a cache line.
func aligned(bytes int64) []byte {
	raw := make([]byte, bytes+hostAlignment)
	skip := (hostAlignment - int64(uintptr(unsafe.Pointer(&raw[0]))%hostAlignment)) % hostAlignment
	return raw[skip : skip+bytes : skip+bytes]
}
