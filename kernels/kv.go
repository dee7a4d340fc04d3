package kernels

import (
	"fmt"
	"slices"

	"reel.internal/reel/kernels/device"
)

// KV is the pool of KV pages. A page holds PageTokens tokens of one sequence over all layers,
// so that a single copy moves it. It has the layers one after another, with gaps if [KVLayers] says so, each of them
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
	// Start and All lay out pages whose layers differ, as [KVLayers.Of] sets them for the ops of a layer: the elements of
	// a token before that layer, and over all layers. If All is 0, all layers are alike.
	Start, All int
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

// KVLayers is the layout of a page by layer.
type KVLayers []LayerKV

// Of returns k, the pool of all layers, as an op of one layer takes it. An op of whole pages may take that of any.
func (l KVLayers) Of(k KV, layer int) KV {
	k.Heads, k.HeadDim, k.Values = l[layer].Heads, l[layer].HeadDim, l[layer].Values
	k.Layers, k.Start, k.All = len(l), l.start(layer), l.start(len(l))
	return k
}

// most returns the elements of the largest layer, and whether they are a multiple of those of each other one.
func (l KVLayers) most() (n int, divided bool) {
	for _, each := range l {
		n = max(n, each.elements())
	}
	return n, !slices.ContainsFunc(l, func(each LayerKV) bool { return n%each.elements() != 0 })
}

// start returns the elements of a token before a layer, or with the number of layers all. If each layer divides the
// largest one, a layer begins at a multiple of its own size, and so does each page: a GPU's kernels find a place by the
// number of layers of their own size before it. Else the layers have no gaps, and a GPU refuses them.
func (l KVLayers) start(layer int) (at int) {
	most, counted := l.most()
	for i, each := range l {
		if n := each.elements(); counted {
			at = splitsOf(at, n) * n
		}
		if i == layer {
			return at
		}
		at += each.elements()
	}
	if counted {
		at = splitsOf(at, most) * most
	}
	return at
}

// Bytes returns the sizes of the layers in a page of the pool k, in their order, with what pads them.
func (l KVLayers) Bytes(k KV) []int64 {
	all := make([]int64, len(l))
	for i := range l {
		all[i] = k.DType.Size() * int64(k.PageTokens) * int64(l.start(i+1)-l.start(i))
	}
	return all
}

// layer returns the geometry of the op's layer.
func (k KV) layer() LayerKV { return LayerKV{k.Heads, k.HeadDim, k.Values} }

// start returns the elements of a token before a layer.
func (k KV) start(layer int) int {
	if k.All > 0 {
		return k.Start
	}
	return layer * k.layer().elements()
}

// token returns the elements of a token over all layers.
func (k KV) token() int {
	if k.All > 0 {
		return k.All
	}
	return k.Layers * k.layer().elements()
}

// LayerStart returns the place in a page, in bytes, at which the op's layer begins.
func (k KV) LayerStart(layer int) int64 {
	return k.DType.Size() * int64(k.PageTokens) * int64(k.start(layer))
}

// PageBytes returns the size of one page over all layers.
func (k KV) PageBytes() int64 { return k.DType.Size() * int64(k.PageTokens) * int64(k.token()) }

// valueDim returns the elements of a value.
func (k KV) valueDim() int {
	if k.Values > 0 {
		return k.Values
	}
	return k.HeadDim
}

func (k KV) check(layer int) error {
	if k.Pages < 1 || layer < 0 || layer >= k.Layers || k.Data.Bytes() != int64(k.Pages)*k.PageBytes() {
		return fmt.Errorf("%w: KV pool of %d pages in %d bytes, layer %d of %d", device.ErrBadShape, k.Pages,
			k.Data.Bytes(), layer, k.Layers)
	}
	if k.Values < 0 || k.Values > k.HeadDim || k.start(layer) < 0 || k.start(layer)+k.layer().elements() > k.token() {
		return fmt.Errorf("%w: %d KV heads of %d elements, %d of them values, at %d of %d of a token", device.ErrBadShape,
			k.Heads, k.HeadDim, k.Values, k.start(layer), k.token())
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
	return (page*k.token() + k.start(layer) + plane*k.HeadDim) * k.PageTokens
}
