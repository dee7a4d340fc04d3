package weights

import "unsafe"

// Mapped is the bytes of the files that are mapped, as opposed to read.
func (c *Checkpoint) Mapped() (bytes int64) {
	for _, f := range c.files {
		if f.mapped != nil {
			bytes += int64(len(f.data))
		}
	}
	return bytes
}

// Unaligned is the bytes of matrices that do not begin at a multiple of n bytes
// in memory. A device that reads weights in place has to copy these.
func (c *Checkpoint) Unaligned(n int) (bytes int64) {
	for _, t := range c.tensors {
		if len(t.Shape) > 1 && len(t.Data) > 0 && uintptr(unsafe.Pointer(&t.Data[0]))%uintptr(n) != 0 {
			bytes += int64(len(t.Data))
		}
	}
	return bytes
}
