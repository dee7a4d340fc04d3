package model

import (
	"errors"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// differing is the layout of a page with keys and values of heads in one layer and latents in the other.
var differing = kernels.KVLayers{{Heads: 2, HeadDim: 8}, {Heads: 1, HeadDim: 24, Values: 16}}

// Ops of a layer take its geometry and its place in the page, with canaries too; layers that are alike take none.
func TestPoolsOfLayers(t *testing.T) {
	for _, guard := range []bool{false, true} {
		s := &StepMemory{Geometry: Geometry{Guard: guard}}
		s.layers = s.guarded(differing)
		s.KV = poolOf(kernels.KV{PageTokens: 4}, s.layers)
		total := 0
		for _, n := range s.layers.Bytes(s.KV) {
			total += int(n)
		}
		if s.KV.PageBytes() != int64(total) {
			t.Errorf("guard %t: pages of %d bytes, their layers have %d", guard, s.KV.PageBytes(), total)
		}
		for i, want := range differing {
			kv := s.kvOf(i)
			if got := (kernels.LayerKV{Heads: kv.Heads, HeadDim: kv.HeadDim, Values: kv.Values}); got != want {
				t.Errorf("guard %t: layer %d is %+v, want %+v", guard, i, got, want)
			}
		}
		if first, second := s.kvOf(0), s.kvOf(1); guard != (first.Start == 32) || second.Start <= first.Start {
			t.Errorf("guard %t: layers begin at %d and %d", guard, first.Start, second.Start)
		}
	}
	s := &StepMemory{layers: kernels.KVLayers{differing[1], differing[1]}}
	s.KV = poolOf(kernels.KV{PageTokens: 4}, s.layers)
	if s.KV.All != 0 || s.KV.Values != 16 || s.kvOf(1) != s.KV || s.KV.PageBytes() != 4*4*2*24 {
		t.Errorf("layers that are alike: %+v", s.KV)
	}
}

// Canaries between layers that differ are found where they lie.
func TestCanariesBetweenLayersThatDiffer(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	s := &StepMemory{Geometry: Geometry{Guard: true}}
	s.layers = s.guarded(differing)
	s.KV = poolOf(kernels.KV{PageTokens: 4, Pages: 2}, s.layers)
	var err error
	if s.KV.Data, err = h.Load(poison(2 * s.KV.PageBytes())); err != nil {
		t.Fatal(err)
	}
	s.pools = []kernels.KV{s.KV}
	for layer := range differing {
		kv, n := s.kvOf(layer), s.layers.Bytes(s.KV)[s.kvLayer(layer)]
		page := h.Bytes(s.KV.Data)[s.KV.PageBytes():]
		place := page[kv.LayerStart(s.kvLayer(layer)):]
		clear(place[:n])
		if err := s.Intact(h); err != nil {
			t.Errorf("layer %d: %v", layer, err)
		}
		place[n] ^= 1
		if err := s.Intact(h); !errors.Is(err, device.ErrOverrun) {
			t.Errorf("a byte past layer %d: %v", layer, err)
		}
		place[n] ^= 1
	}
}
