//go:build cuda

package cudatest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// matrix returns a random [rows][cols] weight on host and GPU, with values of about 1/sqrt(cols). The host has bfloat16
// values in float32: with weights in bfloat16 it rounds activations at other places than kernels do.
func (b *both) matrix(t kernels.DType, rows, cols int) [2]kernels.Weight {
	b.t.Helper()
	data := b.elements(t, rows*cols, 1/math.Sqrt(float64(cols)))
	var w [2]kernels.Weight
	for on, d := range b.devices {
		dtype, data := t, slices.Clone(data)
		if on == 0 && t == kernels.BF16 {
			dtype, data = kernels.F32, bytesOf(asFloat32(t, data))
		}
		var err error
		w[on], err = kernels.LoadWeight(d, dtype, rows, cols, data)
		b.must(err)
		b.t.Cleanup(func() { b.must(d.Free(w[on].Data)) })
	}
	return w
}

// elements returns n random values of type t.
func (b *both) elements(t kernels.DType, n int, scale float64) []byte {
	switch t {
	case kernels.F32:
		return bytesOf(b.normal(n, scale)) // values of bfloat16 are loaded unchanged
	case kernels.BF16:
		return bytesOf(bitsOf(b.normal(n, scale)))
	}
	if f := formatOf(t); f != nil {
		return b.blocks(*f, n, scale)
	}
	v := make([]uint16, n)
	_, e := math.Frexp(scale)
	for i := range v { // exponents from scale/16 up to 2*scale, all signs and fractions
		v[i] = uint16(b.r.UintN(2)<<15 | uint(15+e-5+b.r.IntN(5))<<10 | b.r.UintN(1<<10))
	}
	return bytesOf(v)
}

// powers returns n powers of two near 1. Multiplying by them is exact.
func (b *both) powers(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.Ldexp(1, b.r.IntN(4)-2))
	}
	return v
}

// sums returns the tolerance of a float32 sum of n products of order 1/sqrt(n).
func sums(n int) float64 { return 4e-6 * math.Sqrt(float64(n)) / 4 }

func TestCUDAPack(t *testing.T) {
	b := newBoth(t)
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16, kernels.F32} {
		for _, c := range [][2]int{{1, 16}, {16, 16}, {17, 48}, {100, 272}, {31, 4096}} {
			data := b.elements(dtype, c[0]*c[1], 1)
			if dtype == kernels.F32 { // with values that must be rounded
				for i, v := range b.normal(c[0]*c[1], 1) {
					copy(data[4*i:], bytesOf([]float32{v * 1.2345678}))
				}
			}
			src := put(b, data)
			op := func(on int) kernels.Pack { return kernels.Pack{Src: src[on], DType: dtype, Rows: c[0], Cols: c[1]} }
			dst := b.poisoned(int(kernels.PackedBytes(dtype, c[0], c[1]) / 4))
			b.run(func(on int) device.Op {
				p := op(on)
				p.Dst = dst[on]
				return p
			})
			b.same(fmt.Sprintf("type %d, %v", dtype, c), dst)
		}
	}
}

func TestCUDALoadRefusesWhatCannotBePacked(t *testing.T) {
	b := newBoth(t)
	if _, err := kernels.LoadWeight(b.g, kernels.BF16, 2, 24, make([]byte, 96)); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("24 columns: %v, wants ErrBadShape", err)
	}
	x := b.poisoned(64)
	w := kernels.Weight{Data: x[1].Slice(0, 2*16*4), DType: kernels.BF16, Rows: 4, Cols: 16}
	if err := b.streams[1].Launch(kernels.Projection{W: w, In: x[1], X: x[1], T: 1}); !errors.Is(err,
		device.ErrBadShape) {
		t.Errorf("a weight that is not packed: %v, wants ErrBadShape", err)
	}
}

func TestCUDAEmbed(t *testing.T) {
	b := newBoth(t)
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16, kernels.F32} {
		const vocab, hidden, rows = 45, 176, 33
		table := b.matrix(dtype, vocab, hidden)
		tokens := make([]int32, rows)
		for i := range tokens {
			tokens[i] = b.r.Int32N(vocab)
		}
		tokens[0] = vocab - 1
		token, x := put(b, tokens), b.poisoned(rows*hidden)
		b.run(func(on int) device.Op {
			return kernels.Embed{Table: table[on], Rows: kernels.Rows{Token: token[on]}, X: x[on], T: rows}
		})
		b.same("embedding", x)
	}
}

// oddRows are the numbers of token rows at which kernels change, and their neighbors.
var oddRows = []int{1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 200}

func TestCUDAProjection(t *testing.T) {
	b := newBoth(t)
	for i, rows := range oddRows {
		in, hidden := []int{64, 80, 4096, 1040, 176, 11008}[i%6], []int{64, 100, 272, 16}[i%4]
		w := b.matrix([]kernels.DType{kernels.BF16, kernels.F16}[i%2], hidden, in)
		x, res := put(b, b.normal(rows*in, 1)), put(b, b.normal(rows*hidden, 1))
		b.run(func(on int) device.Op { return kernels.Projection{W: w[on], In: x[on], X: res[on], T: rows} })
		most := b.close(fmt.Sprintf("%d rows of %d to %d", rows, in, hidden), res, sums(in), 1e-6)
		t.Logf("%d rows of %d to %d: off by %.1e at most", rows, in, hidden, most)
	}
}

func TestCUDAGateUp(t *testing.T) {
	b := newBoth(t)
	for i, rows := range oddRows {
		hidden, inner := []int{64, 80, 2048, 1040, 4096}[i%5], []int{64, 90, 272, 16}[i%4]
		dtype := []kernels.DType{kernels.BF16, kernels.F16}[i%2]
		gate, up := b.matrix(dtype, inner, hidden), b.matrix(dtype, inner, hidden)
		x, norm, out := put(b, b.normal(rows*hidden, 3)), put(b, b.powers(hidden)), b.poisoned(rows*inner)
		b.run(func(on int) device.Op {
			return kernels.GateUp{X: x[on], Norm: norm[on], Gate: gate[on], Up: up[on], Out: out[on], T: rows,
				Eps: 1e-5}
		})
		most := b.close(fmt.Sprintf("%d rows of %d to %d", rows, hidden, inner), out, 4*sums(hidden), 1e-5)
		t.Logf("%d rows of %d to %d: off by %.1e at most", rows, hidden, inner, most)
	}
}

// With any norm weights: x·g is rounded to 8 bits, an error of at most 2^-9 of each term.
func TestCUDARoundsActivations(t *testing.T) {
	b := newBoth(t)
	const rows, hidden, inner = 20, 2048, 64
	gate, up := b.matrix(kernels.BF16, inner, hidden), b.matrix(kernels.BF16, inner, hidden)
	g := b.normal(hidden, 1)
	for i := range g {
		g[i] *= 1.2345678
	}
	x, norm, out := put(b, b.normal(rows*hidden, 3)), put(b, g), b.poisoned(rows*inner)
	b.run(func(on int) device.Op {
		return kernels.GateUp{X: x[on], Norm: norm[on], Gate: gate[on], Up: up[on], Out: out[on], T: rows, Eps: 1e-5}
	})
	t.Logf("off by %.1e at most", b.close("rounded", out, 2e-2, 1e-2))
}

func TestCUDAHead(t *testing.T) {
	b := newBoth(t)
	for i, n := range oddRows {
		hidden, vocab, rows := []int{64, 80, 2048, 1040}[i%4], []int{64, 90, 272, 1001}[i%4], n+3
		w := b.matrix([]kernels.DType{kernels.BF16, kernels.F16}[i%2], vocab, hidden)
		sample := make([]int32, n+2)
		for s := range sample {
			sample[s] = b.r.Int32N(int32(rows))
		}
		sample[n], sample[n+1] = -1, -1
		samples, x, norm := put(b, sample), put(b, b.normal(rows*hidden, 3)), put(b, b.powers(hidden))
		logits := b.poisoned((n + 2) * vocab)
		b.run(func(on int) device.Op {
			return kernels.Head{X: x[on], Norm: norm[on], W: w[on], Rows: kernels.Rows{Sample: samples[on]},
				Logits: logits[on], T: rows, N: n + 2, Eps: 1e-5}
		})
		live := 4 * int64(n*vocab)
		b.close(fmt.Sprintf("%d samples of %d to %d", n, hidden, vocab),
			twin{logits[0].Slice(0, live), logits[1].Slice(0, live)}, 4*sums(hidden), 1e-5)
		b.same("logits of padding", twin{logits[0].Slice(live, 4*int64(2*vocab)),
			logits[1].Slice(live, 4*int64(2*vocab))})
	}
}

// attention is a QKV on host and GPU, and its output.
type attention struct {
	op  [2]kernels.QKV
	out twin
}

// newAttention returns a QKV over T rows, each at a random position of a slot of its own.
func (b *both) newAttention(dtype, kvType kernels.DType, T, hidden, heads, kvHeads, dim int) attention {
	const context, pageTokens, layers = 64, 16, 2
	pages := context / pageTokens
	kv := kernels.KV{DType: kvType, Pages: T*pages + 1, PageTokens: pageTokens, Layers: layers, Heads: kvHeads,
		HeadDim: dim}
	slots, positions, table := make([]int32, T), make([]int32, T), make([]int32, (T+1)*pages)
	for i, slot := range b.r.Perm(T) {
		slots[i], positions[i] = int32(slot), b.r.Int32N(context)
	}
	for i, page := range b.r.Perm(T * pages) {
		table[i] = int32(page + 1)
	}
	q, k, v := b.matrix(dtype, heads*dim, hidden), b.matrix(dtype, kvHeads*dim, hidden),
		b.matrix(dtype, kvHeads*dim, hidden)
	x, norm, rope := put(b, b.normal(T*hidden, 3)), put(b, b.powers(hidden)), put(b, b.randomRoPE(context, dim))
	slot, position, blocks := put(b, slots), put(b, positions), put(b, table)
	words := 2 * layers * kvHeads * pageTokens * dim * kv.Pages
	pool := twin{b.load(0, poison(4*words)), b.load(1, poison(words*int(kvType.Size())))}
	a := attention{out: b.poisoned(T * heads * dim)}
	for on := range a.op {
		o := kv
		o.Data = pool[on]
		if on == 0 {
			o.DType = kernels.F32
		}
		a.op[on] = kernels.QKV{X: x[on], Norm: norm[on], Q: q[on], K: k[on], V: v[on], RoPE: rope[on],
			Rows:  kernels.Rows{Slot: slot[on], Position: position[on]},
			Slots: kernels.Slots{Count: T + 1, Pages: pages, Context: context, BlockTable: blocks[on]},
			KV:    o, Out: a.out[on], T: T, Layer: 1, Hidden: hidden, Heads: heads, Eps: 1e-5}
	}
	return a
}

// poison returns n bytes of 0xff: NaN in float32, bfloat16 and float16.
func poison(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = 0xff
	}
	return p
}

// asFloat32 returns the elements of a pool as float32.
func asFloat32(t kernels.DType, raw []byte) []float32 {
	if t == kernels.F32 {
		return slices.Clone(viewOf[float32](raw))
	}
	out := make([]float32, len(raw)/2)
	for i, u := range viewOf[uint16](raw) {
		out[i] = math.Float32frombits(uint32(u) << 16)
		if t == kernels.F16 {
			out[i] = kernels.Float16(u)
		}
	}
	return out
}

func TestCUDAQKV(t *testing.T) {
	b := newBoth(t)
	for i, rows := range oddRows {
		hidden, dim := []int{64, 80, 2048, 1040}[i%4], []int{32, 64, 96, 128, 256}[i%5]
		kvHeads, group := 1+i%3, []int{1, 2, 4, 8}[i/2%4]
		kvType := []kernels.DType{kernels.BF16, kernels.F32, kernels.F16}[i%3]
		name := fmt.Sprintf("%d rows of %d, %d heads of %d for each of %d, KV type %d", rows, hidden, group, dim,
			kvHeads, kvType)
		a := b.newAttention([]kernels.DType{kernels.BF16, kernels.F16}[i%2], kvType, rows, hidden, kvHeads*group,
			kvHeads, dim)
		b.run(func(on int) device.Op { return a.op[on] })
		b.close(name+": q", a.out, 4*sums(hidden), 1e-5)
		b.samePool(name, a, 4*sums(hidden))
	}
}

// samePool fails if the GPU's pool differs from the host's by more than atol and the precision of
// its type. Elements that were not written are NaN on both.
func (b *both) samePool(name string, a attention, atol float64) {
	b.t.Helper()
	got := asFloat32(a.op[1].KV.DType, read[byte](b, 1, a.op[1].KV.Data))
	for i, want := range read[float32](b, 0, a.op[0].KV.Data) {
		if math.IsNaN(float64(want)) != math.IsNaN(float64(got[i])) {
			b.t.Fatalf("%s: element %d of the pool is %v, wants %v", name, i, got[i], want)
		}
		if d := math.Abs(float64(got[i] - want)); d > atol+math.Abs(float64(want))/256 {
			b.t.Fatalf("%s: element %d of the pool is %v, wants %v", name, i, got[i], want)
		}
	}
}
