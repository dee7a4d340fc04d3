package device

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mappedFrom is the size in bytes from which memory is mapped, apart from Go's
// heap. The collector lets garbage grow as large as the heap is, so a pool of
// pages on it would let that of hostile frames grow as large as the pool.
const mappedFrom = 1 << 20

// allocate returns zeroed memory, and whether it is mapped. The system gives
// mapped memory when it is touched. Where it refuses a mapping the error is
// ErrOutOfMemory: Go's heap would end the process.
func allocate(bytes int64) (mem []byte, mapped bool, err error) {
	if bytes < mappedFrom {
		return aligned(bytes), false, nil
	}
	mem, err = unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, false, fmt.Errorf("%w: the system refuses %d bytes: %w", ErrOutOfMemory, bytes, err)
	}
	return mem, true, nil
}

// aligned returns zeroed memory of Go's heap, aligned to a cache line.
func aligned(bytes int64) []byte {
	raw := make([]byte, bytes+hostAlignment)
	skip := (hostAlignment - int64(uintptr(unsafe.Pointer(&raw[0]))%hostAlignment)) % hostAlignment
	return raw[skip : skip+bytes : skip+bytes]
}
