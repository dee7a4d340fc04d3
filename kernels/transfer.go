package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// StorePage copies a KV page, over all layers, to pinned host memory. On a GPU its copy engine does it, and no
// multiprocessor.
type StorePage struct {
	KV   KV
	Page int
	To   device.Buffer // of Ranks times KV.PageBytes() bytes, pinned: each rank's part of the page
	// Ranks is that of the device; 0 is 1.
	Ranks int
}

// Kernel returns "storepage".
func (StorePage) Kernel() string { return "storepage" }

// Check compares dimensions.
func (o StorePage) Check() error { return o.KV.checkTransfer(o.Page, o.To, o.Ranks) }

// Host copies on the host.
func (o StorePage) Host(h *device.Host) {
	copy(h.Bytes(o.KV.ofRank(o.To, h.Rank())), h.Bytes(o.KV.page(o.Page)))
}

// LoadPage copies pinned host memory to a KV page; it is the inverse of [StorePage].
type LoadPage struct {
	KV   KV
	Page int
	From device.Buffer // of Ranks times KV.PageBytes() bytes, pinned: each rank's part of the page
	// Ranks is that of the device; 0 is 1.
	Ranks int
}

// Kernel returns "loadpage".
func (LoadPage) Kernel() string { return "loadpage" }

// Check compares dimensions.
func (o LoadPage) Check() error { return o.KV.checkTransfer(o.Page, o.From, o.Ranks) }

// Host copies on the host.
func (o LoadPage) Host(h *device.Host) {
	copy(h.Bytes(o.KV.page(o.Page)), h.Bytes(o.KV.ofRank(o.From, h.Rank())))
}

// page returns the memory of a page.
func (k KV) page(page int) device.Buffer {
	return k.Data.Slice(int64(page)*k.PageBytes(), k.PageBytes())
}

// ofRank returns a rank's part of a page in pinned memory.
func (k KV) ofRank(host device.Buffer, rank int) device.Buffer {
	return host.Slice(int64(rank)*k.PageBytes(), k.PageBytes())
}

func (k KV) checkTransfer(page int, host device.Buffer, ranks int) error {
	if page < 1 || page >= k.Pages || host.Bytes() != int64(max(1, ranks))*k.PageBytes() {
		return fmt.Errorf("%w: transfer of page %d of %d and %d bytes, a page has %d", device.ErrBadShape, page,
			k.Pages, host.Bytes(), k.PageBytes())
	}
	return k.check(0)
}
