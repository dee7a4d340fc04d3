package kernels

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// layered is the layout of pages whose layers differ: two of keys and values of heads, and one of latents.
var layered = KVLayers{{Heads: 2, HeadDim: 8}, {Heads: 1, HeadDim: 20, Values: 16}, {Heads: 1, HeadDim: 6}}

// The layers of a page lie one after another, and their keys and values fill it without overlap.
func TestLayersOfAPage(t *testing.T) {
	pool := KV{Pages: 3, PageTokens: 4}
	bytes, start := layered.Bytes(pool), int64(0)
	if want := []int64{4 * 4 * 32, 4 * 4 * 20, 4 * 4 * 12}; !slices.Equal(bytes, want) {
		t.Fatalf("layers of %d bytes, want %d", bytes, want)
	}
	used := make([]bool, 3*4*64)
	for layer := range layered {
		k := layered.Of(pool, layer)
		if k.LayerStart(layer) != start || k.PageBytes() != 4*4*64 || k.Layers != 3 {
			t.Fatalf("layer %d is at %d of %d bytes, want %d", layer, k.LayerStart(layer), k.PageBytes(), start)
		}
		for i := range k.Pages * k.layer().elements() / k.HeadDim {
			page, plane := i%k.Pages, i/k.Pages
			at := k.at(page, layer, plane/k.Heads, plane%k.Heads)
			if begin := page*4*64 + int(start/4); at < begin || at+4*k.HeadDim > begin+int(bytes[layer]/4) {
				t.Fatalf("plane %d of layer %d is at %d, outside of the layer", plane, layer, at)
			}
			for j := range 4 * k.HeadDim {
				if used[at+j] {
					t.Fatalf("element %d of plane %d of layer %d overlaps another", j, plane, layer)
				}
				used[at+j] = true
			}
		}
		start += bytes[layer]
	}
	if slices.Contains(used, false) {
		t.Error("a page has elements that belong to no layer")
	}
}

// Layers that divide the largest one begin at multiples of their sizes, as do pages. Others have no gaps.
func TestLayersBeginAtMultiplesOfTheirSizes(t *testing.T) {
	for _, c := range []struct {
		layers  KVLayers
		starts  []int // the last one is the size of all
		divided bool
	}{
		{KVLayers{{2, 512, 0}, {8, 256, 0}, {8, 256, 0}}, []int{0, 4096, 8192, 12288}, true},
		{KVLayers{{2, 512, 0}, {2, 256, 0}}, []int{0, 2048, 4096}, true},
		{KVLayers{{2, 512, 0}, {3, 256, 0}, {3, 256, 0}}, []int{0, 2048, 3584, 5120}, false},
	} {
		for i, want := range c.starts {
			if got := c.layers.start(i); got != want {
				t.Errorf("%v: layer %d begins at %d, want %d", c.layers, i, got, want)
			}
		}
		if err := CheckPages(c.layers); (err == nil) != c.divided || err != nil && !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%v on a GPU: %v", c.layers, err)
		}
	}
}

// Values that are part of their keys have one place, in pages of equal layers too.
func TestValuesInKeys(t *testing.T) {
	for _, kv := range []KV{layered.Of(KV{Pages: 3, PageTokens: 4}, 1),
		{Pages: 3, PageTokens: 4, Layers: 3, Heads: 1, HeadDim: 20, Values: 16}} {
		if kv.at(1, 1, 0, 0) != kv.at(1, 1, 1, 0) {
			t.Errorf("%+v: values are elsewhere than keys", kv)
		}
	}
}

// Ops refuse a pool of another size, and a layer that does not lie in the page.
func TestLayersAreChecked(t *testing.T) {
	good := layered.Of(KV{Pages: 3, PageTokens: 4}, 2)
	good.Data = device.NewBuffer(1, 1, good.PageBytes()*3)
	if err := good.check(2); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(k *KV){
		"another page":       func(k *KV) { k.All++ },
		"beyond the page":    func(k *KV) { k.Start += 2 },
		"before the page":    func(k *KV) { k.Start = -1 },
		"larger heads":       func(k *KV) { k.HeadDim = 8 },
		"values of no key":   func(k *KV) { k.Values = 7 },
		"negative values":    func(k *KV) { k.Values = -1 },
		"fewer layers":       func(k *KV) { k.Layers = 2 },
		"layers all of this": func(k *KV) { k.All = 0 },
	} {
		k := good
		change(&k)
		if err := k.check(2); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", name, err)
		}
	}
}

// Attention in a page of different layers has the bits that it has in one of equal layers.
func TestAttendInLayersThatDiffer(t *testing.T) {
	h := device.NewHost(device.HostOptions{Workers: 2})
	defer h.Close()
	for _, l := range []LayerKV{{2, 8, 0}, {1, 20, 16}} {
		var results [2][]float32
		for i, layers := range []KVLayers{{l, l, l}, {{1, 4, 0}, l, {3, 10, 0}}} {
			kv := layers.Of(KV{PageTokens: 4}, 1)
			if i == 0 {
				kv.All, kv.Start = 0, 0
			}
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
