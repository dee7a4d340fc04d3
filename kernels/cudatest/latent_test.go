//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// latentShape is the dimensions of multi-head latent attention. The second layer of a page is the one under test; the
// first has other dimensions.
type latentShape struct {
	rows, heads, nope, latent, rope, context, window int
	logits                                           bool
}

func (s latentShape) layers() kernels.KVLayers {
	return kernels.KVLayers{{Heads: 1, HeadDim: 16}, {Heads: 1, HeadDim: s.latent + s.rope, Values: s.latent}}
}

// latentPool is a pool on both devices with random rows for sequences of these lengths, each in a slot of its own, and
// NaN elsewhere.
func (b *both) latentPool(s latentShape, lengths []int) (kv [2]kernels.KV, slots [2]kernels.Slots) {
	const page = 16
	pages, d := (s.context+page-1)/page, s.latent+s.rope
	one := s.layers().Of(kernels.KV{Pages: 1 + len(lengths)*pages, PageTokens: page}, 1)
	pool := make([]float32, one.PageBytes()/4*int64(one.Pages))
	for i := range pool {
		pool[i] = float32(math.NaN())
	}
	table := make([]int32, (len(lengths)+1)*pages)
	for i, p := range b.r.Perm(len(lengths) * pages) {
		table[i] = int32(p + 1)
	}
	for slot, n := range lengths {
		for p := range n {
			at := int(table[slot*pages+p/page])*int(one.PageBytes()/4) + int(one.LayerStart(1)/4) + p%page*d
			copy(pool[at:], b.normal(d, 1))
		}
	}
	tables := put(b, table)
	for on := range kv {
		kv[on] = one
		slots[on] = kernels.Slots{Count: len(lengths) + 1, Pages: pages, Context: s.context, BlockTable: tables[on]}
	}
	kv[0].Data, kv[1].Data, kv[1].DType = b.load(0, bytesOf(pool)), b.load(1, bytesOf(bitsOf(pool))), kernels.BF16
	return kv, slots
}

// latentAttend returns attention of the last rows of sequences of these lengths on both devices.
func (b *both) latentAttend(s latentShape, lengths []int, class kernels.Class) (op [2]kernels.Attend, out twin) {
	kv, slots := b.latentPool(s, lengths)
	slot, position := make([]int32, s.rows), make([]int32, s.rows)
	for i := range slot {
		slot[i] = int32(i % len(lengths))
		position[i] = int32(max(0, lengths[slot[i]]-1-i/len(lengths)))
	}
	query, at, positions := put(b, b.normal(s.rows*s.heads*(s.latent+s.rope), 1)), put(b, slot), put(b, position)
	out = b.poisoned(s.rows * s.heads * s.latent)
	var l logits
	if s.logits {
		l = b.randomLogits(s.heads)
	}
	work := b.load(1, make([]byte, kernels.LatentWorkspaceBytes(s.rows, s.heads, s.latent, s.context)))
	for on := range op {
		op[on] = kernels.Attend{Q: query[on], Rows: kernels.Rows{Slot: at[on], Position: positions[on]},
			Slots: slots[on], KV: kv[on], Out: out[on], Workspace: twin{1: work}[on], T: s.rows, Layer: 1, Heads: s.heads,
			Scale: float32(1 / math.Sqrt(float64(s.latent+s.rope))), Window: s.window, Class: class,
			Softcap: l.softcap, Sinks: l.sinks[on]}
	}
	return op, out
}

var latentShapes = []latentShape{{1, 16, 128, 512, 64, 4100, 0, false}, {5, 16, 128, 512, 64, 700, 0, false},
	{70, 16, 128, 512, 64, 300, 0, false}, {3, 5, 32, 48, 16, 1500, 0, true}, {4, 20, 16, 16, 16, 130, 20, false},
	{2, 40, 64, 256, 32, 1000, 300, true}, {9, 1, 16, 32, 32, 1, 0, false}}

// lengths returns a random length for each of up to six sequences; the first has the whole context.
func (b *both) lengths(s latentShape) []int {
	all := []int{s.context}
	for range min(s.rows, 6) - 1 {
		all = append(all, 1+b.r.IntN(s.context))
	}
	return all
}

// Attention over latents equals the host's.
func TestCUDALatentAttend(t *testing.T) {
	for _, s := range latentShapes {
		b := newBoth(t)
		op, out := b.latentAttend(s, b.lengths(s), kernels.Decode)
		b.run(func(on int) device.Op { return op[on] })
		position, width := read[int32](b, 0, op[0].Rows.Position), s.heads*s.latent
		got, want := read[float32](b, 1, out[1]), read[float32](b, 0, out[0])
		most := b.closeTo(fmt.Sprintf("%+v", s), got, want, func(i int) float64 {
			seen := int(position[i/width]) + 1
			if s.window > 0 {
				seen = min(seen, s.window)
			}
			return 2e-4 + 0.02/math.Sqrt(float64(seen))
		}, 8e-3)
		b.rowsWithin("latent attention", got, want, s.latent, 1e-2)
		t.Logf("%+v: at most %.1e off", s, most)
	}
}

// A row has the same bits alone, in a batch of which no block shares splits, and in a verify pass.
func TestCUDALatentAttendIsBatchInvariant(t *testing.T) {
	for _, s := range latentShapes {
		b := newBoth(t)
		s.rows = max(s.rows, kernels.AttendSplitRows+2) // more than share splits
		op, out := b.latentAttend(s, b.lengths(s), kernels.Decode)
		b.onGPU(op[1])
		width := s.heads * s.latent
		want := read[uint32](b, 1, out[1])
		for _, row := range []int{0, 1, 2, 33, s.rows - 1} {
			one := b.latentRows(s, op[1], row, 1)
			b.onGPU(one)
			b.equal(fmt.Sprintf("%+v, row %d alone", s, row), read[uint32](b, 1, one.Out), want[row*width:(row+1)*width])
			b.replay(one)
			b.equal(fmt.Sprintf("%+v, row %d replayed", s, row), read[uint32](b, 1, one.Out), want[row*width:(row+1)*width])
		}
		verify := b.latentRows(s, op[1], 0, 8)
		verify.Queries = 4
		b.onGPU(verify)
		b.equal(fmt.Sprintf("%+v, a verify pass", s), read[uint32](b, 1, verify.Out), want[:8*width])
	}
}

// latentRows returns the op of some of another's rows, whose results go elsewhere.
func (b *both) latentRows(s latentShape, op kernels.Attend, from, rows int) kernels.Attend {
	each := int64(4 * s.heads * (s.latent + s.rope))
	op.T, op.Out = rows, b.poisoned(rows * s.heads * s.latent)[1]
	op.Q = op.Q.Slice(int64(from)*each, int64(rows)*each)
	op.Rows = kernels.Rows{Slot: op.Rows.Slot.Slice(int64(4*from), int64(4*rows)),
		Position: op.Rows.Position.Slice(int64(4*from), int64(4*rows))}
	return op
}

// A row of a prompt has the same bits in any chunk, beside any others, and whether or not blocks share its splits.
func TestCUDALatentAttendInAnyChunk(t *testing.T) {
	for _, s := range latentShapes {
		b := newBoth(t)
		s.rows = max(s.rows, 20)
		op, out := b.latentAttend(s, []int{s.context}, kernels.Prefill)
		width, n := s.heads*s.latent, min(s.rows, s.context)
		b.run(func(on int) device.Op { return op[on] })
		want := read[uint32](b, 1, out[1])
		b.rowsWithin("latent attention of a prompt", read[float32](b, 1, out[1]), read[float32](b, 0, out[0]), s.latent, 1e-2)
		for from, rows := range map[int]int{0: 1, n / 2: 1, n / 3: n - n/3, n - 1: 1} {
			part := b.latentRows(s, op[1], from, rows)
			b.onGPU(part)
			b.equal(fmt.Sprintf("%+v, %d rows from %d on", s, rows, from), read[uint32](b, 1, part.Out),
				want[from*width:(from+rows)*width])
			tune.ParallelSplits = false
			b.replay(part)
			tune.ParallelSplits = true
			b.equal(fmt.Sprintf("%+v, %d rows from %d on, in one block", s, rows, from), read[uint32](b, 1, part.Out),
				want[from*width:(from+rows)*width])
		}
	}
}

// The products, norm and RoPE before latent attention equal the host's, in either class, and leave the rest of the pool
// and of the queries alone.
func TestCUDALatentQKV(t *testing.T) {
	const hidden = 64
	for i, s := range []latentShape{{1, 16, 128, 512, 64, 64, 0, false}, {7, 2, 16, 48, 16, 64, 0, false},
		{40, 3, 32, 32, 32, 64, 0, false}, {5, 2, 16, 16, 16, 64, 0, false}} { // c goes alone in the last one
		for _, class := range []kernels.Class{kernels.Decode, kernels.Prefill} {
			b := newBoth(t)
			lengths := make([]int, s.rows)
			kv, slots := b.latentPool(s, lengths)
			slot, position := make([]int32, s.rows), make([]int32, s.rows)
			for row := range slot {
				slot[row], position[row] = int32(row), b.r.Int32N(64)
			}
			dtype := []kernels.DType{kernels.BF16, kernels.F16}[i%2]
			in, down, downNorm := hidden, [2]kernels.Weight{}, twin{}
			if i > 0 { // queries have a latent
				in = 96
				down, downNorm = b.matrix(dtype, in, hidden), put(b, b.powers(in))
			}
			q, c := b.matrix(dtype, s.heads*(s.nope+s.rope), in), b.matrix(dtype, s.latent+s.rope, hidden)
			x, norm, latentNorm := put(b, b.normal(s.rows*hidden, 3)), put(b, b.powers(hidden)), put(b, b.powers(s.latent))
			rope, at, positions := put(b, b.randomRoPE(64, s.rope)), put(b, slot), put(b, position)
			products, out := b.poisoned(s.rows*(q[0].Rows+c[0].Rows+down[0].Rows)), b.poisoned(s.rows*s.heads*(s.latent+s.rope))
			identity, zero, index := put(b, slices.Repeat([]float32{1, 0}, 16)), put(b, make([]int32, s.rows)), put(b, slot)
			b.run(func(on int) device.Op {
				return kernels.LatentQKV{X: x[on], Norm: norm[on], QueryDown: down[on], QueryNorm: downNorm[on],
					Q: q[on], C: c[on], LatentNorm: latentNorm[on],
					RoPE: rope[on], Rows: kernels.Rows{Slot: at[on], Position: positions[on]}, Slots: slots[on], KV: kv[on],
					Products: products[on], Out: out[on], Identity: identity[on], Zero: zero[on], Index: index[on], T: s.rows, Layer: 1,
					Hidden: hidden, Heads: s.heads, Nope: s.nope, Eps: 1e-5, LatentEps: 0.1, Class: class}
			})
			name, tolerance := fmt.Sprintf("%+v, %s", s, class), 8*sums(hidden)
			if i > 0 { // a sum on the edge rounds the queries' latent the other way
				tolerance += 0.01
			}
			b.close(name+": products", products, tolerance, 1e-3)
			nearOrNaN(t, name+": queries", read[float32](b, 1, out[1]), read[float32](b, 0, out[0]), tolerance)
			nearOrNaN(t, name+": pool", asFloat32(kernels.BF16, read[byte](b, 1, kv[1].Data)),
				read[float32](b, 0, kv[0].Data), 8*tolerance)
		}
	}
}

// nearOrNaN fails at an element that is another number, or a number where the other is none.
func nearOrNaN(t *testing.T, name string, got, want []float32, tolerance float64) {
	t.Helper()
	for i, w := range want {
		if math.IsNaN(float64(w)) != math.IsNaN(float64(got[i])) ||
			math.Abs(float64(got[i]-w)) > tolerance+math.Abs(float64(w))/128 {
			t.Fatalf("%s: element %d is %v, wants %v", name, i, got[i], w)
		}
	}
}

// Products of heads equal the host's and write nothing else; a row has the same bits alone.
func TestCUDAHeadProduct(t *testing.T) {
	b := newBoth(t)
	for i, c := range []struct{ rows, heads, out, in, inStride, outStride int }{{1, 16, 512, 128, 192, 576},
		{7, 16, 128, 512, 512, 128}, {33, 3, 16, 48, 52, 20}, {9, 5, 32, 16, 16, 32}, {70, 16, 512, 128, 192, 576}, {130, 3, 128, 512, 512, 128},
		{17, 2, 64, 64, 64, 80}} {
		w := b.matrix([]kernels.DType{kernels.BF16, kernels.F16}[i%2], c.heads*c.out, c.in)
		in, out := put(b, b.normal(c.rows*c.heads*c.inStride, 1)), b.poisoned(c.rows*c.heads*c.outStride)
		op := func(on int) kernels.HeadProduct {
			return kernels.HeadProduct{W: w[on], In: in[on], Out: out[on], T: c.rows, Heads: c.heads, InStride: c.inStride,
				OutStride: c.outStride}
		}
		b.run(func(on int) device.Op { return op(on) })
		all := read[float32](b, 1, out[1])
		nearOrNaN(t, fmt.Sprintf("%+v", c), all, read[float32](b, 0, out[0]), 8*sums(c.in))
		one, n := op(1), c.heads*c.outStride
		one.T, one.Out = 1, b.poisoned(n)[1]
		one.In = one.In.Slice(int64(4*(c.rows-1)*c.heads*c.inStride), int64(4*c.heads*c.inStride))
		b.onGPU(one)
		b.equal(fmt.Sprintf("%+v alone", c), read[uint32](b, 1, one.Out), bits32(all[(c.rows-1)*n:]))
	}
}

// BenchmarkCUDALatentAttend measures attention over latents in DeepSeek-V2-Lite's shape: generated rows of sequences of
// their own, and a prompt.
func BenchmarkCUDALatentAttend(t *testing.B) {
	for _, c := range []struct{ rows, sequences, n int }{{1, 1, 500}, {1, 1, 4000}, {8, 8, 1000}, {400, 1, 400}} {
		t.Run(fmt.Sprintf("%d-rows-of-%d", c.rows, c.n), func(t *testing.B) {
			b := newBoth(t)
			s := latentShape{rows: c.rows, heads: 16, nope: 128, latent: 512, rope: 64, context: c.n}
			op, _ := b.latentAttend(s, slices.Repeat([]int{c.n}, c.sequences), kernels.Decode)
			b.perLaunch(t, float64(c.sequences*c.n*2*(s.latent+s.rope)), op[1])
		})
	}
}
