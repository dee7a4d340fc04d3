package protocol

import "golang.org/x/sys/unix"

// mappedFrame is the size in bytes from which a frame that counts against a Budget is
// read into mapped memory instead of Go's heap. The system provides that memory as bytes
// arrive and frees it at once. The garbage collector would free it too late if many large
// frames arrive together.
const mappedFrame = 64 << 10

// mapMemory returns n bytes of mapped memory, or nil if the system refuses.
func mapMemory(n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	return mem
}

// unmapMemory frees memory from mapMemory.
func unmapMemory(mem []byte) {
	if mem != nil {
		_ = unix.Munmap(mem) // fails only for memory that is not mapped
	}
}
