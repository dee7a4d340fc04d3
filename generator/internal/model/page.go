package model

import (
	"slices"

	"reel.internal/reel/kernels"
)

// LayersKV returns what a page holds of each layer of the model. Families whose layers differ, or that store a latent,
// differ here.
func (c Config) LayersKV() (all kernels.KVLayers) {
	if c.Latent != nil {
		return slices.Repeat(kernels.KVLayers{c.Latent.kv()}, c.Layers)
	}
	all = make(kernels.KVLayers, c.ownKV())
	for i := range all {
		each := c.At(i)
		all[c.pageLayer(i)] = kernels.LayerKV{Heads: each.kvHeads(), HeadDim: each.HeadDim}
	}
	return all
}

// pageLayer returns the place among the layers of a page of layer i, which has keys and values of its own: wide ones come
// first, as pages then have the least between layers.
func (c Config) pageLayer(i int) (place int) {
	if c.Wide == nil {
		return i
	}
	for j := range c.ownKV() {
		if c.isWide(j) && !c.isWide(i) || c.isWide(j) == c.isWide(i) && j < i {
			place++
		}
	}
	return place
}

// poolOf returns a pool whose pages have these layers, without memory. Layers that are all alike need no places of their
// own: a GPU has its fastest kernels for them.
func poolOf(kv kernels.KV, layers kernels.KVLayers) kernels.KV {
	kv = layers.Of(kv, 0)
	if len(slices.Compact(slices.Clone(layers))) == 1 {
		kv.Start, kv.All = 0, 0
	}
	return kv
}

// kvOf returns the pool as the ops of a layer take it that uses the keys and values at place i of a page.
func (s *StepMemory) kvOf(i int) kernels.KV {
	if s.KV.All == 0 {
		return s.KV
	}
	return s.layers.Of(s.KV, s.kvLayer(i))
}
