package kernels

import (
	"fmt"

	"reel/kernels/device"
)

// Fill sets every 4-byte element of a buffer to one value. Verification poisons
// memory with it, so that a pass that reads what it did not write shows.
type Fill struct {
	Data  device.Buffer
	Value uint32 // bits
}

// Poison is the bits of a float32 NaN that no computation makes.
const Poison = 0x7fdeadbe

// Kernel is "fill".
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
