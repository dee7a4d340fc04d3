package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// KV is the pool of KV pages. A page holds PageTokens tokens of one sequence over all layers,
// so that a single copy moves it. It has the layers one after another, each of them
// [key, value][KV head][token of the page][HeadDim], or with Values [KV head][token of the page][HeadDim].
// Page 0 is the trash page.
type KV struct {
	Data       device.Buffer
	DType      DType // of keys and values; 0 is F32, the only one on the host
	Pages      int   // with the trash page
	PageTokens int
	Layers     int
	Heads      int // KV heads
	HeadDim    int // of a key, and without Values of a value
	// Values, if it is not 0, says that the value of a token is the first so many elements of its key, and that a page
	// has no others. So multi-head latent attention stores its latent and the part of the key that RoPE rotates, in one
	// row for all heads. (DeepSeek-V2, 2024.)
	Values int
	// ByLayer is the layout of a page whose layers differ, or nil: all layers are as Heads, HeadDim and Values say. An op
	// then takes [KV.Of] its layer.
	ByLayer *KVLayers
}

// LayerKV is what a page holds of one layer; see [KV].
type LayerKV struct{ Heads, HeadDim, Values int }

// elements returns the elements of a token.
func (l LayerKV) elements() int {
	if l.Values > 0 {
		return l.Heads * l.HeadDim
	}
	return 2 * l.Heads * l.HeadDim
}

// KVLayers is the layout of pages whose layers differ. It does not change.
type KVLayers struct {
	layers []LayerKV
	starts []int // elements of a token before each layer, and at the end all of them
}

// NewKVLayers returns the layout of pages with these layers.
func NewKVLayers(layers ...LayerKV) *KVLayers {
	l := &KVLayers{layers: layers, starts: make([]int, 1, len(layers)+1)}
	for i, layer := range layers {
		l.starts = append(l.starts, l.starts[i]+layer.elements())
	}
	return l
}

// layer returns the geometry that k has for its layers, if they do not differ.
func (k KV) layer() LayerKV { return LayerKV{k.Heads, k.HeadDim, k.Values} }

// Of returns k with the geometry of one layer, as an op of that layer takes it.
func (k KV) Of(layer int) KV {
	if k.ByLayer != nil {
		l := k.ByLayer.layers[layer]
		k.Heads, k.HeadDim, k.Values = l.Heads, l.HeadDim, l.Values
	}
	return k
}

// start returns the elements of a token before a layer, and of all layers for the one after the last.
func (k KV) start(layer int) int {
	if k.ByLayer != nil {
		return k.ByLayer.starts[layer]
	}
	return layer * k.layer().elements()
}

// LayerBytes returns the size of one layer in a page.
func (k KV) LayerBytes(layer int) int64 {
	return k.DType.Size() * int64(k.PageTokens) * int64(k.start(layer+1)-k.start(layer))
}

// LayerStart returns the place in a page, in bytes, at which a layer begins.
func (k KV) LayerStart(layer int) int64 {
	return k.DType.Size() * int64(k.PageTokens) * int64(k.start(layer))
}

// PageBytes returns the size of one page over all layers.
func (k KV) PageBytes() int64 { return k.LayerStart(k.Layers) }

// valueDim returns the elements of a value.
func (k KV) valueDim() int {
	if k.Values > 0 {
		return k.Values
	}
	return k.HeadDim
}

// check compares dimensions for an op of a layer.
func (k KV) check(layer int) error {
	if err := k.checkPages(); err != nil {
		return err
	}
	if layer < 0 || layer >= k.Layers || k.Of(layer) != k || k.Values < 0 || k.Values > k.HeadDim {
		return fmt.Errorf("%w: layer %d of %d with %d KV heads of %d elements, %d of them values", device.ErrBadShape,
			layer, k.Layers, k.Heads, k.HeadDim, k.Values)
	}
	return nil
}

// checkPages compares dimensions for an op of whole pages.
func (k KV) checkPages() error {
	if k.ByLayer != nil && len(k.ByLayer.layers) != k.Layers {
		return fmt.Errorf("%w: a layout of %d layers for %d", device.ErrBadShape, len(k.ByLayer.layers), k.Layers)
	}
	if k.Pages < 1 || k.Layers < 1 || k.Data.Bytes() != int64(k.Pages)*k.PageBytes() {
		return fmt.Errorf("%w: KV pool of %d pages in %d bytes, %d layers", device.ErrBadShape, k.Pages, k.Data.Bytes(),
			k.Layers)
	}
	return nil
}

// at returns the index of the first element of a page's keys (which is 0) or values (which is 1)
// in one layer and KV head. They are [PageTokens][HeadDim] from there.
func (k KV) at(page, layer, which, head int) int {
	plane := head
	if k.Values == 0 {
		plane += which * k.Heads
	}
	return (page*k.start(k.Layers) + k.start(layer) + plane*k.HeadDim) * k.PageTokens
}
