package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// KV is the pool of KV pages. A page holds PageTokens tokens of one sequence over all layers,
// so that a single copy moves it:
// [page][layer][key, value][KV head][token of the page][HeadDim].
// Page 0 is the trash page.
type KV struct {
	Data       device.Buffer
	DType      DType // of keys and values; 0 is F32, the only one on the host
	Pages      int   // with the trash page
	PageTokens int
	Layers     int
	Heads      int // KV heads
	HeadDim    int
}

// PageBytes returns the size of one page over all layers.
func (k KV) PageBytes() int64 {
	return k.DType.Size() * 2 * int64(k.Layers) * int64(k.Heads) * int64(k.PageTokens) * int64(k.HeadDim)
}

func (k KV) check(layer int) error {
	if k.Pages < 1 || layer < 0 || layer >= k.Layers || k.Data.Bytes() != int64(k.Pages)*k.PageBytes() {
		return fmt.Errorf("%w: KV pool of %d pages in %d bytes, layer %d of %d", device.ErrBadShape, k.Pages,
			k.Data.Bytes(), layer, k.Layers)
	}
	return nil
}

// at returns the index of the first element of a page's keys (which is 0) or values (which is 1)
// in one layer and KV head. They are [PageTokens][HeadDim] from there.
func (k KV) at(page, layer, which, head int) int {
	return (((page*k.Layers+layer)*2+which)*k.Heads + head) * k.PageTokens * k.HeadDim
}
