package kernels

import (
	"errors"
	"math"
	"testing"

	"reel.internal/reel/kernels/device"
)

// normed returns rmsnorm of row x in float64.
func normed(x, g []float32, eps float64) []float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v) / math.Sqrt(sum/float64(len(x))+eps) * float64(g[i])
	}
	return y
}

// times returns W·x in float64; W is [rows][len(x)].
func times(w, x []float64) []float64 {
	y := make([]float64, len(w)/len(x))
	for r := range y {
		for i, v := range x {
			y[r] += w[r*len(x)+i] * v
		}
	}
	return y
}

func TestProjectionAddsToTheResidual(t *testing.T) {
	for _, dtype := range []DType{BF16, F32} {
		for _, rows := range []int{1, 3, 4, 9} {
			g := newRig(t, 1, 8)
			const in, hidden = 37, 20
			w, wv := g.weight(dtype, hidden, in)
			inBuf, inV := g.random(rows * in)
			x, xv := g.random(rows * hidden)
			before := append([]float32(nil), xv...)
			g.launch(Projection{W: w, In: inBuf, X: x, T: rows})
			for r := range rows {
				row := wide(inV[r*in : (r+1)*in])
				if dtype == BF16 {
					row = rounded(inV[r*in : (r+1)*in])
				}
				for i, v := range times(wv, row) {
					if want := v + float64(before[r*hidden+i]); !near(xv[r*hidden+i], want, in) {
						t.Fatalf("dtype %d, row %d of %d, element %d: %v, wants %v", dtype, r, rows, i,
							xv[r*hidden+i], want)
					}
				}
			}
		}
	}
}

func TestGateUp(t *testing.T) {
	g := newRig(t, 1, 8)
	const rows, hidden, inner = 5, 24, 33
	gate, gv := g.weight(F32, inner, hidden)
	up, uv := g.weight(F32, inner, hidden)
	x, xv := g.random(rows * hidden)
	norm, nv := g.random(hidden)
	out := g.poisoned(rows * inner)
	g.launch(GateUp{X: x, Norm: norm, Gate: gate, Up: up, Out: out, T: rows, Eps: 1e-5})
	for r := range rows {
		n := normed(xv[r*hidden:(r+1)*hidden], nv, 1e-5)
		a, b := times(gv, n), times(uv, n)
		for i := range a {
			want := a[i] / (1 + math.Exp(-a[i])) * b[i]
			if got := g.h.Float32(out)[r*inner+i]; !near(got, want, 4*hidden) {
				t.Fatalf("row %d, element %d: %v, wants %v", r, i, got, want)
			}
		}
	}
}

func TestHeadDoesNotWritePadding(t *testing.T) {
	g := newRig(t, 1, 8)
	const hidden, vocab = 16, 50
	w, wv := g.weight(F32, vocab, hidden)
	x, xv := g.random(4 * hidden)
	norm, nv := g.random(hidden)
	logits := g.poisoned(3 * vocab)
	g.stage(Step{Rows: make([]Row, 4), Samples: []int32{2, 0}}, 4, 3)
	g.launch(Head{X: x, Norm: norm, W: w, Rows: g.rows, Logits: logits, T: 4, N: 3, Eps: 1e-5})
	for i, row := range []int{2, 0} {
		for id, want := range times(wv, normed(xv[row*hidden:(row+1)*hidden], nv, 1e-5)) {
			if got := g.h.Float32(logits)[i*vocab+id]; !near(got, want, 4*hidden) {
				t.Fatalf("sample %d, token %d: %v, wants %v", i, id, got, want)
			}
		}
	}
	if got := g.h.Float32(logits)[2*vocab]; !math.IsNaN(float64(got)) {
		t.Fatalf("the padding sample's logits were written: %v", got)
	}
}

func TestEmbed(t *testing.T) {
	for _, dtype := range []DType{BF16, F32} {
		g := newRig(t, 1, 8)
		w, wv := g.weight(dtype, 30, 12)
		x := g.poisoned(2 * 12)
		g.stage(Step{Rows: []Row{{0, 0, 29}, {1, 0, 3}}}, 2, 0)
		g.launch(Embed{Table: w, Rows: g.rows, X: x, T: 2})
		for t2, token := range []int{29, 3} {
			for i := range 12 {
				if got, want := g.h.Float32(x)[t2*12+i], float32(wv[token*12+i]); got != want {
					t.Fatalf("row %d, element %d: %v, wants %v", t2, i, got, want)
				}
			}
		}
	}
}

// Each op refuses buffers that are too small for its dimensions.
func TestChecksRefuseSmallBuffers(t *testing.T) {
	g := newRig(t, 1, 8)
	w, _ := g.weight(BF16, 8, 8)
	big, _ := g.random(64)
	rope, _ := g.random(rigContext * 8)
	small := big.Slice(0, 4*7)
	noMask, noBias := g.slots, g.slots
	noMask.Mask, noBias.Bias = small, small
	raw, err := AllocKVBeforeRoPE(g.h, 1, 1*8, 8)
	g.must(err)
	for _, op := range []device.Op{
		Projection{W: w, In: small, X: big, T: 1},
		Projection{W: w, In: big, X: small, T: 1},
		GateUp{X: small, Norm: big, Gate: w, Up: w, Out: big, T: 1},
		GateUp{X: big, Norm: big, Gate: w, Up: Weight{}, Out: big, T: 1},
		Head{X: big, Norm: small, W: w, Rows: g.rows, Logits: big, T: 1, N: 1},
		Embed{Table: w, Rows: g.rows, X: small, T: 1},
		Sample{Logits: small, Rows: g.rows, Slots: g.slots, Records: big, T: 1, N: 1, Vocab: 8, RingSlots: 1,
			MaxSamples: 1},
		Sample{Logits: big, Edited: small, Rows: g.rows, Slots: g.slots, Records: big, T: 1, N: 1, Vocab: 8, RingSlots: 1,
			MaxSamples: 1},
		Sample{Logits: big, Edited: big, Rows: g.rows, Slots: noMask, Records: big, T: 1, N: 1, Vocab: 8, RingSlots: 1,
			MaxSamples: 1},
		Sample{Logits: big, Edited: big, Rows: g.rows, Slots: noBias, Records: big, T: 1, N: 1, Vocab: 8, RingSlots: 1,
			MaxSamples: 1},
		Attend{Q: small, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1, Heads: 1},
		Attend{Q: big, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1, Heads: 1, Layer: rigLayers},
		QKV{X: big, Norm: big, Q: w, K: w, V: w, RoPE: rope, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1,
			Hidden: 8, Heads: 1, Bias: small},
		QKV{X: big, Norm: big, Q: w, K: w, V: w, RoPE: rope, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1,
			Hidden: 8, Heads: 1, HeadNorms: small},
		Attend{Q: big, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1, Heads: 1, Window: -1},
		Attend{Q: big, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1, Heads: 1,
			Post: QKPost{RoPE: rope, BeforeRoPE: raw}, Class: Prefill},
		Attend{Q: big, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1, Heads: 1,
			Post: QKPost{RoPE: small, BeforeRoPE: raw}},
		Attend{Q: big, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1, Heads: 1, Post: QKPost{RoPE: rope}},
		Attend{Q: big, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1, Heads: 1,
			Post: QKPost{RoPE: rope, BeforeRoPE: raw, HeadNorms: small}},
		QKV{X: big, Norm: big, Q: w, K: w, V: w, RoPE: rope, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1,
			Hidden: 8, Heads: 1, BeforeRoPE: raw, DeferRoPE: true},
		QKV{X: big, Norm: big, Q: w, K: w, V: w, RoPE: rope, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1,
			Hidden: 8, Heads: 1, Bias: big, DeferRoPE: true},
		QKV{X: big, Norm: big, Q: w, K: w, V: w, RoPE: rope, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1,
			Hidden: 8, Heads: 1, Bias: big, BeforeRoPE: raw, DeferRoPE: true, Class: Prefill},
		QKV{X: big, Norm: big, Q: w, K: w, V: w, RoPE: small, Rows: g.rows, Slots: g.slots, KV: g.kv, Out: big, T: 1,
			Hidden: 8, Heads: 1},
		Stage{Ring: small, Counter: big, Layout: g.layout, Slots: g.slots, Rows: g.rows, RingSlots: 1, T: 1},
	} {
		if err := g.stream.Launch(op); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s with a small buffer: %v, wants ErrBadShape", op.Kernel(), err)
		}
	}
}
