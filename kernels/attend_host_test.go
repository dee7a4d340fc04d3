package kernels

import (
	"errors"
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
	return newHostAttendOf(t, h, r, kv, 0, heads, positions, rows)
}

// newHostAttendOf is newHostAttend in a layer.
func newHostAttendOf(t testing.TB, h *device.Host, r *rand.Rand, kv KV, layer, heads, positions, rows int) Attend {
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
	a := Attend{Q: alloc(rows * heads * kv.HeadDim), Out: alloc(rows * heads * kv.HeadDim), KV: kv, T: rows, Layer: layer,
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
	if !o.Sinks.IsZero() {
		sum = math.Exp(float64(h.Float32(o.Sinks)[head]))
	}
	for j := range last + 1 {
		if !sees(j) {
			continue
		}
		var dot float64
		for i, k := range o.hostKV(h, j, 0, kvHead) {
			dot += float64(q[i]) * float64(k)
		}
		weight := math.Exp(o.capped(dot * float64(o.Scale)))
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

// capped returns a score after the softcap.
func (o Attend) capped(score float64) float64 {
	if o.Softcap == 0 {
		return score
	}
	return float64(o.Softcap) * math.Tanh(score/float64(o.Softcap))
}

// randomLogits gives a a random softcap, sinks, both or neither. Sinks are below and above all scores too.
func randomLogits(t testing.TB, h *device.Host, r *rand.Rand, a *Attend) {
	t.Helper()
	a.Softcap = []float32{0, 0.5, 3, 50}[r.IntN(4)]
	if r.IntN(2) == 0 {
		return
	}
	sinks := make([]float32, a.Heads)
	for i := range sinks {
		sinks[i] = float32(r.NormFloat64()) * []float32{1, 30}[r.IntN(2)]
	}
	var err error
	if a.Sinks, err = LoadVector(h, sinks); err != nil {
		t.Fatal(err)
	}
}

// The host's attention equals float64's for any page, head size, group, window, softcap and sinks, at short and long
// contexts.
func TestHostAttendIsNearFloat64(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 4))
	for _, group := range []int{1, 2, 3, 4, 7, 12} {
		for _, page := range []int{1, 2, 3, 8, 16} {
			h := device.NewHost(device.HostOptions{Workers: 2})
			d := []int{6, 8, 16, 20, 32, 33, 64, 80, 128, 192, 256}[r.IntN(11)]
			positions := 3 + r.IntN([]int{5, 40, 600}[r.IntN(3)])
			a := newHostAttend(t, h, r, KV{PageTokens: page, Layers: 1, Heads: 2, HeadDim: d}, 2*group, positions, 3)
			a.Window, a.First = []int{0, 1, page + 1, 100}[r.IntN(4)], r.IntN(positions-2) // at most the first row's
			randomLogits(t, h, r, &a)
			position := h.Int32(a.Rows.Position)
			r.Shuffle(a.T, func(i, j int) { position[i], position[j] = position[j], position[i] })
			a.Host(h)
			tolerance := 2e-6 + 2e-7*float64(a.Softcap)
			for i := range a.T * a.Heads {
				for j, want := range a.exact(h, i/a.Heads, i%a.Heads) {
					if got := h.Float32(a.Out)[i*d+j]; !(math.Abs(float64(got)-want) < tolerance) {
						t.Fatalf("%d heads over 2 of %d, pages of %d, window %d from %d, softcap %v, sinks %v, row %d of %d "+
							"at %d: %v, wants %v", a.Heads, d, page, a.Window, a.First, a.Softcap, !a.Sinks.IsZero(),
							i/a.Heads, a.T, positions, got, want)
					}
				}
			}
			h.Close()
		}
	}
}

// A row's bits do not depend on the rows and heads computed with it, nor on the workers, with a softcap and sinks too.
func TestHostAttendIsTheSameAlone(t *testing.T) {
	for _, logits := range []bool{false, true} {
		testHostAttendAlone(t, logits)
	}
}

func testHostAttendAlone(t *testing.T, logits bool) {
	const heads, kvHeads, d, positions, rows = 12, 2, 32, 700, 21
	results := map[int][]float32{}
	for _, page := range []int{1, 5, 16} {
		for _, workers := range []int{1, 3} {
			h := device.NewHost(device.HostOptions{Workers: workers})
			a := newHostAttend(t, h, rand.New(rand.NewPCG(1, 5)), KV{PageTokens: page, Layers: 1, Heads: kvHeads,
				HeadDim: d}, heads, positions, rows)
			if logits {
				a.Softcap, a.Window = 2, 300
				a.Sinks, _ = LoadVector(h, []float32{1, -2, 3, 0, 9, -40, 5, 1, 0, 2, 30, 4})
			}
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

// Attention refuses softcaps that are no bound, and sinks of another number of heads.
func TestAttendRefusesLogits(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	good := newHostAttend(t, h, rand.New(rand.NewPCG(1, 6)), KV{PageTokens: 2, Layers: 1, Heads: 1, HeadDim: 4}, 2, 3, 1)
	good.Softcap, good.Sinks = 50, good.Q.Slice(0, 8)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Attend){
		"negative softcap":  func(a *Attend) { a.Softcap = -1 },
		"softcap NaN":       func(a *Attend) { a.Softcap = float32(math.NaN()) },
		"infinite softcap":  func(a *Attend) { a.Softcap = float32(math.Inf(1)) },
		"sinks of one head": func(a *Attend) { a.Sinks = a.Q.Slice(0, 4) },
		"sinks of too many": func(a *Attend) { a.Sinks = a.Q.Slice(0, 4*4) },
	} {
		a := good
		change(&a)
		if err := a.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", name, err)
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
