//go:build cuda

package kernels

import (
	"testing"

	"reel/kernels/device"
)

// Writes one element past a buffer, which does no harm by itself: the driver
// gives out memory by 512 bytes. Run by compute-sanitizer it must be reported.
func TestCUDAPlantedOverrun(t *testing.T) {
	b := newBoth(t)
	number, id, _ := b.load(1, make([]byte, 4*33)).Handle()
	b.onGPU(Fill{Data: device.NewBuffer(number, id, 4*34)})
}

// Copies a page that nobody wrote. Run by compute-sanitizer's initcheck it must be
// reported.
func TestCUDAPlantedUnwritten(t *testing.T) {
	b := newBoth(t)
	kv := KV{DType: BF16, Pages: 2, PageTokens: 16, Layers: 1, Heads: 1, HeadDim: 32}
	var err error
	kv.Data, err = b.g.Uncleared(int64(kv.Pages) * kv.PageBytes())
	b.must(err)
	b.onGPU(CopyPage{KV: kv, From: 0, To: 1})
	b.must(b.g.Free(kv.Data))
}
