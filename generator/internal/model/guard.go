package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"reel/kernels"
	"reel/kernels/device"
)

// A guarded pool has 2L+1 layers for the L of the model: layer i is at 2i+1, and
// those between, before and after are canaries, in every page. An op that writes
// past the keys and values of its layer and page meets one. What it writes from
// one head to the next, or from keys to values, inside of them is not seen.

func (g Geometry) kvLayers(layers int) int {
	if g.Guard {
		return 2*layers + 1
	}
	return layers
}

// kvLayer is where the pool has the keys and values of layer i.
func (g Geometry) kvLayer(i int) int {
	if g.Guard {
		return 2*i + 1
	}
	return i
}

// allocateKV takes the pool, of which a guarded one holds kernels.Poison everywhere.
func (s *StepMemory) allocateKV(dev tracked) (device.Buffer, error) {
	size := int64(s.KV.Pages) * s.KV.PageBytes()
	if !s.Guard {
		return dev.Uncleared(size)
	}
	return dev.Load(poison(size))
}

// poison is n bytes of kernels.Poison.
func poison(n int64) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint32(nil, kernels.Poison), int(n/4))
}

// Intact looks at the canaries of a guarded KV pool. No step runs. Errors:
// device.ErrOverrun for each layer of a page that was overrun, and the device's.
func (s *StepMemory) Intact(dev device.Memory) (err error) {
	if !s.Guard {
		return nil
	}
	page, plane := make([]byte, s.KV.PageBytes()), s.KV.PageBytes()/int64(s.KV.Layers)
	canary := poison(plane)
	for p := range int64(s.KV.Pages) {
		if failed := dev.Read(page, s.KV.Data.Slice(p*s.KV.PageBytes(), s.KV.PageBytes())); failed != nil {
			return failed
		}
		for i := 0; i < s.KV.Layers; i += 2 {
			if !bytes.Equal(page[int64(i)*plane:int64(i+1)*plane], canary) {
				err = errors.Join(err, fmt.Errorf("%w: KV page %d, between the layers %d and %d", device.ErrOverrun, p, i/2-1, i/2))
			}
		}
	}
	return err
}
