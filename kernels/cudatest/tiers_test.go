//go:build cuda

package cudatest

import (
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Restores of random states leave the same slots on host and GPU, and touch no other slot.
func TestCUDARestore(t *testing.T) {
	b := newBoth(t)
	for _, s := range []struct{ pages, tokens, context int }{
		{0, 0, 40}, {1, 1, 40}, {3, 33, 64}, {25, 400, 4096}, {256, 4096, 4096}, {6251, 100_001, 100_100},
	} {
		const count = 5
		table := (s.context + 15) / 16
		slots := b.poisonedSlots(count, table, s.context)
		state := kernels.SlotState{Init: kernels.Init{Slot: b.r.Int32N(count - 1), Generation: b.r.Int32(),
			Prompt: b.r.Int32(), Sampling: kernels.Sampling{Temperature: 0.5, TopK: b.r.Int32(), Seed: b.r.Uint64()}},
			Token: b.r.Int32(), Pages: b.int32s(s.pages), History: b.int32s(s.tokens)}
		staged := b.staged(&state)
		b.run(func(on int) device.Op {
			return kernels.Restore{Staged: staged[on], Slots: slots[on], Slot: int(state.Init.Slot), Pages: s.pages,
				Tokens: s.tokens}
		})
		for name, x := range map[string]func(kernels.Slots) device.Buffer{
			"params":      func(s kernels.Slots) device.Buffer { return s.Params },
			"tokens":      func(s kernels.Slots) device.Buffer { return s.Token },
			"block table": func(s kernels.Slots) device.Buffer { return s.BlockTable },
			"history":     func(s kernels.Slots) device.Buffer { return s.History },
			"lengths":     func(s kernels.Slots) device.Buffer { return s.Length },
		} {
			b.same(name, twin{x(slots[0]), x(slots[1])})
		}
	}
}

// int32s returns n random values.
func (b *both) int32s(n int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = b.r.Int32()
	}
	return v
}

// poisonedSlots returns slots on both that hold the poison everywhere.
func (b *both) poisonedSlots(count, pages, context int) (slots [2]kernels.Slots) {
	table, length, token := b.poisoned(count*pages), b.poisoned(count), b.poisoned(count)
	history, params := b.poisoned(count*context), b.poisoned(count*kernels.ParamWords)
	for on := range slots {
		slots[on] = kernels.Slots{Count: count, Pages: pages, Context: context, BlockTable: table[on], Length: length[on],
			Token: token[on], History: history[on], Params: params[on]}
	}
	return slots
}

// staged writes a state to pinned memory of both.
func (b *both) staged(state *kernels.SlotState) (x twin) {
	b.t.Helper()
	for on, d := range b.devices {
		buffer, mapped, err := d.Pinned(4 * int64(state.Words()))
		b.must(err)
		b.t.Cleanup(func() { b.must(d.Free(buffer)) })
		b.must(state.Encode(mapped.Bytes()))
		x[on] = buffer
	}
	return x
}

// Pages that are stored in pinned memory and loaded into other pages hold the same bits; no other page changes.
func TestCUDATransfer(t *testing.T) {
	b := newBoth(t)
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F32} {
		kv := kernels.KV{DType: dtype, Pages: 9, PageTokens: 16, Layers: 3, Heads: 2, HeadDim: 64}
		raw := make([]uint32, int64(kv.Pages)*kv.PageBytes()/4)
		for i := range raw {
			raw[i] = b.r.Uint32()
		}
		x, host := put(b, raw), twin{}
		for on, d := range b.devices {
			var err error
			host[on], _, err = d.Pinned(2 * kv.PageBytes())
			b.must(err)
			b.t.Cleanup(func() { b.must(d.Free(host[on])) })
		}
		of := func(on int) kernels.KV {
			kv.Data = x[on]
			return kv
		}
		place := func(on, i int) device.Buffer { return host[on].Slice(int64(i)*kv.PageBytes(), kv.PageBytes()) }
		for i, page := range []int{5, 8} {
			b.run(func(on int) device.Op { return kernels.StorePage{KV: of(on), Page: page, To: place(on, i)} })
		}
		b.same("host memory", host)
		for i, page := range []int{2, 1} {
			b.run(func(on int) device.Op { return kernels.LoadPage{KV: of(on), Page: page, From: place(on, i)} })
		}
		b.same("pool", x)
		words := int(kv.PageBytes() / 4)
		after := read[uint32](b, 1, x[1])
		b.equal("a page that was stored and loaded", after[2*words:3*words], raw[5*words:6*words])
		b.equal("the second one", after[words:2*words], raw[8*words:])
	}
}
