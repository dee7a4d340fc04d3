package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// newHostAttend returns attention for the last rows of a sequence of so many positions in slot 0. Queries, keys and
// values are random, pages lie in random order, and unwritten memory is NaN.
func newHostAttend(t testing.TB, h *device.Host, r *rand.Rand, kv KV, heads, positions, rows int) Attend {
	t.Helper()
	alloc := func(n int) device.Buffer {
		buffer, err := h.Alloc(4 * int64(n))
		if err != nil {
			t.Fatal(err)
		}
		return buffer
	}
	pages := (positions + kv.PageTokens - 1) / kv.PageTokens
	kv.Pages = pages + 1
	kv.Data = alloc(int(kv.PageBytes()/4) * kv.Pages)
	a := Attend{Q: alloc(rows * heads * kv.HeadDim), Out: alloc(rows * heads * kv.HeadDim), KV: kv, T: rows,
		Rows: Rows{Slot: alloc(rows), Position: alloc(rows)}, Heads: heads,
		Scale: float32(1 / math.Sqrt(float64(kv.HeadDim))),
		Slots: Slots{Count: 1, Pages: pages, Context: pages * kv.PageTokens, BlockTable: alloc(pages)}}
	for i, p := range r.Perm(pages) {
		h.Int32(a.Slots.BlockTable)[i] = int32(p + 1)
	}
	for i := range rows {
		h.Int32(a.Rows.Position)[i] = int32(positions - rows + i)
	}
	for _, b := range []device.Buffer{kv.Data, a.Out} {
		for i := range h.Float32(b) {
			h.Float32(b)[i] = float32(math.NaN())
		}
	}
	for j := range positions {
		for i := range 2 * kv.Heads {
			normal(r, a.hostKV(h, j, i%2, i/2))
		}
	}
	normal(r, h.Float32(a.Q))
	return a
}

// hostKV returns the key (which is 0) or value (which is 1) of a KV head at position j.
func (o Attend) hostKV(h *device.Host, j, which, kvHead int) []float32 {
	page := int(h.Int32(o.Slots.BlockTable)[j/o.KV.PageTokens])
	return h.Float32(o.KV.Data)[o.KV.at(page, o.Layer, which, kvHead)+j%o.KV.PageTokens*o.KV.HeadDim:][:o.KV.HeadDim]
}

// normal fills x with normal random values.
func normal(r *rand.Rand, x []float32) {
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
}

// exact returns attention of a row's query head in float64.
func (o Attend) exact(h *device.Host, t, head int) []float64 {
	last := int(h.Int32(o.Rows.Position)[t])
	return o.exactOver(h, t, head, func(j int) bool { return (o.Window == 0 || j > last-o.Window) && j >= o.First })
}

// exactOver is exact over the positions up to the row's own that sees takes.
func (o Attend) exactOver(h *device.Host, t, head int, sees func(j int) bool) []float64 {
	d, kvHead := o.KV.HeadDim, head/(o.Heads/o.KV.Heads)
	q := h.Float32(o.Q)[(t*o.Heads+head)*d:][:d]
	out, sum, last := make([]float64, d), 0.0, int(h.Int32(o.Rows.Position)[t])
	for j := range last + 1 {
		if !sees(j) {
			continue
		}
		var dot float64
		for i, k := range o.hostKV(h, j, 0, kvHead) {
			dot += float64(q[i]) * float64(k)
		}
		weight := math.Exp(dot * float64(o.Scale))
		sum += weight
		for i, v := range o.hostKV(h, j, 1, kvHead) {
			out[i] += weight * float64(v)
		}
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// The host's attention equals float64's for any page, head size, group and window, at short and long contexts.
func TestHostAttendIsNearFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 4))
	for _, group := range []int{1, 2, 3, 4, 7, 12} {
		for _, page := range []int{1, 2, 3, 8, 16} {
			h := device.NewHost(device.HostOptions{Workers: 2})
			d := []int{6, 8, 16, 20, 32, 33, 64, 80, 128}[r.IntN(9)]
			positions := 3 + r.IntN([]int{5, 40, 600}[r.IntN(3)])
			a := newHostAttend(t, h, r, KV{PageTokens: page, Layers: 1, Heads: 2, HeadDim: d}, 2*group, positions, 3)
			a.Window, a.First = []int{0, 1, page + 1, 100}[r.IntN(4)], r.IntN(positions-2) // at most the first row's
			position := h.Int32(a.Rows.Position)
			r.Shuffle(a.T, func(i, j int) { position[i], position[j] = position[j], position[i] })
			a.Host(h)
			for i := range a.T * a.Heads {
				for j, want := range a.exact(h, i/a.Heads, i%a.Heads) {
					if got := h.Float32(a.Out)[i*d+j]; math.Abs(float64(got)-want) > 2e-6 {
						t.Fatalf("%d heads over 2 of %d, pages of %d, window %d from %d, row %d of %d at %d: %v, wants %v",
							a.Heads, d, page, a.Window, a.First, i/a.Heads, a.T, positions, got, want)
					}
				}
			}
			h.Close()
		}
	}
}

// A row's bits do not depend on the rows and heads computed with it, nor on the workers.
func TestHostAttendIsTheSameAlone(t *testing.T) {
	const heads, kvHeads, d, positions, rows = 12, 2, 32, 700, 21
	results := map[int][]float32{}
	for _, page := range []int{1, 5, 16} {
		for _, workers := range []int{1, 3} {
			h := device.NewHost(device.HostOptions{Workers: workers})
			a := newHostAttend(t, h, rand.New(rand.NewPCG(1, 5)), KV{PageTokens: page, Layers: 1, Heads: kvHeads,
				HeadDim: d}, heads, positions, rows)
			a.Host(h)
			all := slices.Clone(h.Float32(a.Out))
			a.T = 1
			for t0 := range rows {
				copy(h.Float32(a.Q), h.Float32(a.Q)[t0*heads*d:][:heads*d])
				h.Int32(a.Rows.Position)[0] = int32(positions - rows + t0)
				a.Host(h)
				if !slices.Equal(h.Float32(a.Out)[:heads*d], all[t0*heads*d:][:heads*d]) {
					t.Errorf("pages of %d, %d workers: row %d alone differs", page, workers, t0)
				}
			}
			if results[page] == nil {
				results[page] = all
			} else if !slices.Equal(results[page], all) {
				t.Errorf("pages of %d: %d workers give other bits", page, workers)
			}
			h.Close()
		}
	}
}

// Splits of a prompt are short up to 4,096 positions and twice as long beyond.
func TestPrefillSplits(t *testing.T) {
	for context, want := range map[int]int{1: 1, 512: 1, 513: 2, 4096: 8, 4097: 9, 5120: 9, 5121: 10, 131072: 132} {
		if got := prefillSplits(context); got != want {
			t.Errorf("%d positions have %d splits, wants %d", context, got, want)
		}
	}
}
