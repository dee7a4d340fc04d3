package kernels

import (
	"fmt"

	"reel/kernels/device"
)

// Upload copies pinned memory to the device's own: Dst = Src.
type Upload struct {
	Src, Dst device.Buffer // of one size, a multiple of 16 bytes
}

// Kernel is "upload".
func (Upload) Kernel() string { return "upload" }

// Check compares sizes.
func (o Upload) Check() error {
	if o.Src.Bytes() != o.Dst.Bytes() || o.Src.Bytes() == 0 || o.Src.Bytes()%16 != 0 {
		return fmt.Errorf("%w: upload of %d bytes to %d", device.ErrBadShape, o.Src.Bytes(), o.Dst.Bytes())
	}
	return nil
}

// Host copies on the host.
func (o Upload) Host(h *device.Host) { copy(h.Bytes(o.Dst), h.Bytes(o.Src)) }
