package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Fill sets every 4-byte element of a buffer to one value. Verification fills memory with
// [Poison], which shows passes that read memory before they write it.
type Fill struct {
	Data  device.Buffer
	Value uint32 // bits
}

// Poison is the bits of a float32 NaN that no computation produces.
const Poison = 0x7fdeadbe

// Kernel returns "fill".
func (Fill) Kernel() string { return "fill" }

// Check compares dimensions.
func (o Fill) Check() error {
	if o.Data.Bytes() < 4 || o.Data.Bytes()%4 != 0 {
		return fmt.Errorf("%w: fill of %d bytes", device.ErrBadShape, o.Data.Bytes())
	}
	return nil
}

// Host fills on the host.
func (o Fill) Host(h *device.Host) {
	data := h.Int32(o.Data)
	for i := range data {
		data[i] = int32(o.Value)
	}
}
