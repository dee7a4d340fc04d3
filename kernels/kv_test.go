package kernels

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// layered is a pool whose layers differ: two of keys and values of heads, and one of latents.
func layered() KV {
	return KV{Pages: 3, PageTokens: 4, Layers: 3,
		ByLayer: NewKVLayers(LayerKV{Heads: 2, HeadDim: 8}, LayerKV{Heads: 1, HeadDim: 20, Values: 16}, LayerKV{1, 6, 0})}
}

// The layers of a page lie one after another, and their keys and values fill it without overlap.
func TestLayersOfAPage(t *testing.T) {
	kv := layered()
	var bytes []int64
	for layer := range kv.Layers {
		bytes = append(bytes, kv.LayerBytes(layer))
	}
	if want := []int64{4 * 4 * 32, 4 * 4 * 20, 4 * 4 * 12}; !slices.Equal(bytes, want) || kv.PageBytes() != 4*4*64 {
		t.Fatalf("layers of %d bytes, pages of %d; want %d", bytes, kv.PageBytes(), want)
	}
	used := make([]bool, kv.PageBytes()/4*int64(kv.Pages))
	for i := range kv.Pages * kv.Layers {
		page, layer := i/kv.Layers, i%kv.Layers
		k := kv.Of(layer)
		for plane := range k.layer().elements() / k.HeadDim {
			at := k.at(page, layer, plane/k.Heads, plane%k.Heads)
			begin := int(int64(page)*kv.PageBytes()+kv.LayerStart(layer)) / 4
			if at < begin || at+k.HeadDim*kv.PageTokens > begin+int(kv.LayerBytes(layer)/4) {
				t.Fatalf("plane %d of layer %d is at %d, outside of the layer", plane, layer, at)
			}
			for j := range k.HeadDim * kv.PageTokens {
				if used[at+j] {
					t.Fatalf("element %d of plane %d of layer %d overlaps another", j, plane, layer)
				}
				used[at+j] = true
			}
		}
	}
	if slices.Contains(used, false) {
		t.Error("a page has elements that belong to no layer")
	}
}

// Values that are part of their keys have one place.
func TestValuesInKeys(t *testing.T) {
	kv := layered().Of(1)
	if kv.at(1, 1, 0, 0) != kv.at(1, 1, 1, 0) {
		t.Error("values are elsewhere than keys")
	}
}

// Ops refuse a pool that has another geometry for their layer, or another number of layers.
func TestLayersAreChecked(t *testing.T) {
	kv := layered()
	kv.Data = device.NewBuffer(1, 1, kv.PageBytes()*int64(kv.Pages))
	for layer := range kv.Layers {
		if err := errors.Join(kv.Of(layer).check(layer), kv.checkPages()); err != nil {
			t.Errorf("layer %d: %v", layer, err)
		}
		if err := kv.Of((layer + 1) % 3).check(layer); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("layer %d with the geometry of the next: %v", layer, err)
		}
	}
	if err := kv.check(0); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("no geometry: %v", err)
	}
	kv.Layers = 2
	kv.Data = kv.Data.Slice(0, kv.PageBytes()*int64(kv.Pages))
	if err := kv.checkPages(); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("two layers of three: %v", err)
	}
}

// Attention in a page of different layers has the bits that it has in one of equal layers.
func TestAttendInLayersThatDiffer(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 2})
	defer h.Close()
	for _, l := range []LayerKV{{2, 8, 0}, {1, 20, 16}} {
		var results [2][]float32
		for i, by := range []*KVLayers{nil, NewKVLayers(LayerKV{1, 4, 0}, l, LayerKV{3, 10, 0})} {
			kv := KV{PageTokens: 4, Layers: 3, Heads: l.Heads, HeadDim: l.HeadDim, Values: l.Values, ByLayer: by}
			a := newHostAttendOf(t, h, rand.New(rand.NewPCG(1, 9)), kv, 1, 4, 50, 7)
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			a.Host(h)
			results[i] = h.Float32(a.Out)[:7*4*a.KV.valueDim()]
		}
		if !slices.Equal(results[0], results[1]) {
			t.Errorf("%+v: other bits", l)
		}
	}
}
