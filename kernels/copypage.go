package kernels

import (
	"fmt"

	"reel/kernels/device"
)

// CopyPage copies one page over all layers: it is how a page moves.
type CopyPage struct {
	KV       KV
	From, To int
}

// Kernel is "copypage".
func (CopyPage) Kernel() string { return "copypage" }

// Check compares dimensions.
func (o CopyPage) Check() error {
	if o.From < 0 || o.To < 0 || o.From >= o.KV.Pages || o.To >= o.KV.Pages {
		return fmt.Errorf("%w: copy of page %d to %d of %d", device.ErrBadShape, o.From, o.To, o.KV.Pages)
	}
	return o.KV.check(0)
}

// Host copies on the host.
func (o CopyPage) Host(h *device.Host) {
	pool, n := h.Bytes(o.KV.Data), o.KV.PageBytes()
	copy(pool[int64(o.To)*n:][:n], pool[int64(o.From)*n:][:n])
}
