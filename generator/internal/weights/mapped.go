package weights

import "unsafe"

// Mapped returns the total size of the mapped files in bytes.
func (c *Checkpoint) Mapped() (bytes int64) {
	for _, f := range c.files {
		if f.mapped != nil {
			bytes += int64(len(f.data))
		}
	}
	return bytes
}

// Unaligned returns the total size in bytes of the matrices at an address that is not a
// multiple of n. A device that reads weights in place must copy them. Those that are converted do not count.
func (c *Checkpoint) Unaligned(n int) (bytes int64) {
	for _, t := range c.tensors {
		if len(t.Shape) > 1 && t.DType < F8_E4M3 && len(t.Data) > 0 && uintptr(unsafe.Pointer(&t.Data[0]))%uintptr(n) != 0 {
			bytes += int64(len(t.Data))
		}
	}
	return bytes
}
