package protocol

import "golang.org/x/sys/unix"

// mappedFrame is the length in bytes from which a frame that counts against a
// Budget is read into memory of its own, apart from Go's heap. The system gives
// that when bytes arrive and takes it back at once, where the collector would
// come too late for many large frames at the same time.
const mappedFrame = 64 << 10

// mapMemory returns n bytes, or nil where the system has none.
func mapMemory(n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	return mem
}

// unmapMemory gives back what mapMemory returned.
func unmapMemory(mem []byte) {
	if mem != nil {
		_ = unix.Munmap(mem) // it fails only for what is not mapped
	}
}
