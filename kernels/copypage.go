package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// CopyPage copies a KV page, over all layers. The engine moves pages with it.
type CopyPage struct {
	KV       KV
	From, To int
}

// Kernel returns "copypage".
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

// Upload copies pinned host memory to memory of the device: Dst = Src, or with Ranks each rank's part of Src.
type Upload struct {
	Src, Dst device.Buffer // of one size, a multiple of 16 bytes; with Ranks Src has so many of it
	Ranks    int           // that Src has parts for; 0: all ranks copy all of it
}

// Kernel returns "upload".
func (Upload) Kernel() string { return "upload" }

// Check compares sizes.
func (o Upload) Check() error {
	if o.Src.Bytes() != int64(max(1, o.Ranks))*o.Dst.Bytes() || o.Dst.Bytes() == 0 || o.Dst.Bytes()%16 != 0 {
		return fmt.Errorf("%w: upload of %d bytes to %d", device.ErrBadShape, o.Src.Bytes(), o.Dst.Bytes())
	}
	return nil
}

// Host copies on the host.
func (o Upload) Host(h *device.Host) { copy(h.Bytes(o.Dst), h.Bytes(o.of(h.Rank()))) }

// of returns a rank's part of Src.
func (o Upload) of(rank int) device.Buffer {
	if o.Ranks == 0 {
		return o.Src
	}
	return o.Src.Slice(int64(rank)*o.Dst.Bytes(), o.Dst.Bytes())
}
