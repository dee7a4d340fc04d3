package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// For a model of L layers each page of a guarded KV pool holds 2L+1. Layer i of the model
// is at 2i+1; the layers before, between and after are canaries. An op that writes past the
// keys and values of its layer in a page overwrites a canary. A write inside them, into
// another head or from keys into values, goes unnoticed.

// kvLayers returns the number of layers that the pool has for those of the model.
func (g Geometry) kvLayers(layers int) int {
	if g.Guard {
		return 2*layers + 1
	}
	return layers
}

// guarded returns the layers of the pool for those of the model. A canary is like the layer after it, the last one like
// the layer before.
func (g Geometry) guarded(layers kernels.KVLayers) (all kernels.KVLayers) {
	if !g.Guard {
		return layers
	}
	for _, l := range layers {
		all = append(all, l, l)
	}
	return append(all, layers[len(layers)-1])
}

// kvLayer returns the layer of the pool that holds the keys and values of layer i.
func (g Geometry) kvLayer(i int) int {
	if g.Guard {
		return 2*i + 1
	}
	return i
}

// allocatePool allocates the memory of a pool. A guarded pool is filled with kernels.Poison.
func (g Geometry) allocatePool(dev tracked, kv kernels.KV) (device.Buffer, error) {
	size := int64(kv.Pages) * kv.PageBytes()
	if !g.Guard {
		return dev.Uncleared(size)
	}
	return dev.Load(poison(size))
}

// poison returns n bytes of kernels.Poison.
func poison(n int64) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint32(nil, kernels.Poison), int(n/4))
}

// Intact checks the canaries of guarded KV pools. No step may be running. Errors:
// device.ErrOverrun for each canary that was overwritten, and the device's.
func (s *StepMemory) Intact(dev device.Memory) (err error) {
	if !s.Guard {
		return nil
	}
	for i, kv := range s.Pools() {
		layers := s.layers
		if i > 0 { // of the draft model
			layers = s.drafter.layers
		}
		if kv.All == 0 {
			alike := kernels.LayerKV{Heads: kv.Heads, HeadDim: kv.HeadDim, Values: kv.Values}
			layers = slices.Repeat(kernels.KVLayers{alike}, kv.Layers)
		}
		for _, read := range readers(dev) {
			err = errors.Join(err, intact(read, kv, layers.Bytes(kv)))
		}
	}
	return err
}

// readers returns what reads the memory of each rank.
func readers(dev device.Memory) (all []func(dst []byte, b device.Buffer) error) {
	d, ok := dev.(device.Device)
	if !ok || d.Capabilities().Ranks == nil {
		return append(all, dev.Read)
	}
	ranks := d.Capabilities().Ranks
	for rank := range ranks.Count {
		all = append(all, func(dst []byte, b device.Buffer) error { return ranks.Read(rank, dst, b) })
	}
	return all
}

// intact checks the canaries of one pool, whose layers have these sizes.
func intact(read func([]byte, device.Buffer) error, kv kernels.KV, layers []int64) (err error) {
	page, canary := make([]byte, kv.PageBytes()), poison(slices.Max(layers))
	for p := range int64(kv.Pages) {
		if failed := read(page, kv.Data.Slice(p*kv.PageBytes(), kv.PageBytes())); failed != nil {
			return failed
		}
		at := int64(0)
		for i, n := range layers {
			part := page[at:][:n]
			if at += n; i%2 == 0 && !bytes.Equal(part, canary[:n]) {
				err = errors.Join(err, fmt.Errorf("%w: KV page %d, between the layers %d and %d",
					device.ErrOverrun, p, i/2-1, i/2))
			}
		}
	}
	return err
}
