package device

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mappedFrom is the smallest allocation in bytes that is mapped from the system instead
// of Go's heap. The collector lets garbage grow in proportion to the heap: with a KV
// pool on it, garbage of hostile frames could grow as large as the pool.
const mappedFrom = 1 << 20

// allocate returns zeroed memory, aligned to a cache line, and reports whether it is
// mapped and needs Munmap. Mapped memory becomes resident when it is touched. If the
// system refuses a mapping the error is ErrOutOfMemory; Go's heap would end the process.
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

// aligned returns zeroed memory on Go's heap, aligned to a cache line.
func aligned(bytes int64) []byte {
	raw := make([]byte, bytes+hostAlignment)
	skip := (hostAlignment - int64(uintptr(unsafe.Pointer(&raw[0]))%hostAlignment)) % hostAlignment
	return raw[skip : skip+bytes : skip+bytes]
}
