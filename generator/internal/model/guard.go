package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

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
	for _, kv := range s.Pools() {
		err = errors.Join(err, intact(dev, kv))
	}
	return err
}

// intact checks the canaries of one pool.
func intact(dev device.Memory, kv kernels.KV) (err error) {
	page, canary := make([]byte, kv.PageBytes()), poison(kv.PageBytes())
	for p := range int64(kv.Pages) {
		if failed := dev.Read(page, kv.Data.Slice(p*kv.PageBytes(), kv.PageBytes())); failed != nil {
			return failed
		}
		for i := 0; i < kv.Layers; i += 2 {
			n := kv.LayerBytes(i)
			if !bytes.Equal(page[kv.LayerStart(i):][:n], canary[:n]) {
				err = errors.Join(err, fmt.Errorf("%w: KV page %d, between the layers %d and %d",
					device.ErrOverrun, p, i/2-1, i/2))
			}
		}
	}
	return err
}
