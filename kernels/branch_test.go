package kernels

import (
	"errors"
	"math"
	"testing"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// A projection with Store leaves its product and bias alone in a buffer that held NaN; without it adds both.
func TestProjectionStoresAndHasBiases(t *testing.T) {
	const rows, in, hidden = 3, 24, 20
	for _, store := range []bool{false, true} {
		for _, biased := range []bool{false, true} {
			g := newRig(t, 1, 8)
			w, wv := g.weight(BF16, hidden, in)
			inBuf, inV := g.random(rows * in)
			x, before := g.random(rows * hidden)
			before = append([]float32(nil), before...)
			if store {
				x, before = g.poisoned(rows*hidden), make([]float32, rows*hidden)
			}
			o := Projection{W: w, In: inBuf, X: x, T: rows, Store: store}
			bias := make([]float32, hidden)
			if biased {
				o.Bias, bias = g.random(hidden)
			}
			g.launch(o)
			for r := range rows {
				for i, v := range times(wv, rounded(inV[r*in:(r+1)*in])) {
					want := v + float64(before[r*hidden+i]) + float64(bias[i])
					if got := g.h.Float32(x)[r*hidden+i]; !near(got, want, in) {
						t.Fatalf("store %t, biased %t, row %d, element %d: %v, wants %v", store, biased, r, i, got, want)
					}
				}
			}
		}
	}
}

func wide(x []float32) (y []float64) {
	for _, v := range x {
		y = append(y, float64(v))
	}
	return y
}

// rounded returns the bfloat16 nearest to the elements of x, as products with weights in bfloat16 take them.
func rounded(x []float32) (y []float64) {
	for _, v := range x {
		y = append(y, float64(vec.BF16(vec.NearestBF16(v))))
	}
	return y
}

// AddNorm adds normed rows, but not those of padding.
func TestAddNorm(t *testing.T) {
	g := newRig(t, 1, 8)
	const rows, cols = 4, 36
	branch, bv := g.random(rows * cols)
	norm, nv := g.random(cols)
	x, xv := g.random(rows * cols)
	before := append([]float32(nil), xv...)
	g.launch(AddNorm{Branch: branch, Norm: norm, X: x, T: rows, Cols: cols, Eps: 1e-5})
	check := func(rows int) {
		t.Helper()
		for r := range rows {
			for i, v := range normed(bv[r*cols:(r+1)*cols], nv, 1e-5) {
				if want := v + float64(before[r*cols+i]); !near(xv[r*cols+i], want, cols) {
					t.Fatalf("row %d, element %d: %v, wants %v", r, i, xv[r*cols+i], want)
				}
			}
		}
	}
	check(rows)
	copy(xv, before)
	index := g.poisoned(rows)
	copy(g.h.Int32(index), []int32{0, 1, -1, -1})
	g.launch(AddNorm{Branch: branch, Norm: norm, X: x, RowIndex: index, T: rows, Cols: cols, Eps: 1e-5})
	check(2)
	for i := 2 * cols; i < rows*cols; i++ {
		if xv[i] != before[i] {
			t.Fatalf("element %d of padding is %v, was %v", i, xv[i], before[i])
		}
	}
}

// The gate's activations are those of their papers, in forms that do not share code with the op.
func TestActivations(t *testing.T) {
	for a := -12.0; a < 12; a += 0.125 {
		for f, want := range wantActivation {
			x := []float32{float32(a)}
			f.gate(x, []float32{1})
			if got := float64(x[0]); math.Abs(got-want(a)) > 1e-6*(1+math.Abs(a)) {
				t.Errorf("activation %d of %v is %v, wants %v", f, a, got, want(a))
			}
		}
	}
}

var wantActivation = map[Activation]func(a float64) float64{
	SiLU: func(a float64) float64 { return a / (1 + math.Exp(-a)) },
	GELUTanh: func(a float64) float64 {
		return a / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(a+0.044715*a*a*a)))
	},
}

// GateUp has the activation that it is given, and with NoNorm the rows as they are.
func TestGateUpOfFamilies(t *testing.T) {
	g := newRig(t, 1, 8)
	const rows, hidden, inner = 3, 24, 33
	gate, gv := g.weight(BF16, inner, hidden)
	up, uv := g.weight(BF16, inner, hidden)
	x, xv := g.random(rows * hidden)
	ones, ov := g.random(hidden)
	for i := range ov {
		ov[i] = 1
	}
	copy(g.h.Float32(ones), ov)
	for _, f := range []Activation{SiLU, GELUTanh} {
		out := g.poisoned(rows * inner)
		g.launch(GateUp{X: x, Norm: ones, Gate: gate, Up: up, Out: out, T: rows, Eps: NoNorm, Activation: f})
		for r := range rows {
			n := rounded(xv[r*hidden : (r+1)*hidden])
			a, b := times(gv, n), times(uv, n)
			for i := range a {
				want := wantActivation[f](a[i]) * b[i]
				if got := g.h.Float32(out)[r*inner+i]; !near(got, want, 4*hidden) {
					t.Fatalf("activation %d, row %d, element %d: %v, wants %v", f, r, i, got, want)
				}
			}
		}
	}
}

// Softcap bounds the logits of samples, not those of padding.
func TestHeadBoundsLogits(t *testing.T) {
	g := newRig(t, 1, 8)
	const hidden, vocab, limit = 16, 50, 0.75
	w, wv := g.weight(F32, vocab, hidden)
	x, xv := g.random(2 * hidden)
	norm, nv := g.random(hidden)
	logits := g.poisoned(3 * vocab)
	g.stage(Step{Rows: make([]Row, 2), Samples: []int32{1, 0}}, 2, 3)
	g.launch(Head{X: x, Norm: norm, W: w, Rows: g.rows, Logits: logits, T: 2, N: 3, Eps: 1e-5, Softcap: limit})
	for i, row := range []int{1, 0} {
		for id, v := range times(wv, normed(xv[row*hidden:(row+1)*hidden], nv, 1e-5)) {
			if got, want := g.h.Float32(logits)[i*vocab+id], limit*math.Tanh(v/limit); !near(got, want, 4*hidden) {
				t.Fatalf("sample %d, token %d: %v, wants %v", i, id, got, want)
			}
		}
	}
	if got := g.h.Float32(logits)[2*vocab]; !math.IsNaN(float64(got)) {
		t.Fatalf("the padding sample's logits were written: %v", got)
	}
}

func TestEmbedScales(t *testing.T) {
	g := newRig(t, 1, 8)
	w, wv := g.weight(BF16, 30, 12)
	x := g.poisoned(12)
	g.stage(Step{Rows: []Row{{0, 0, 29}}}, 1, 0)
	g.launch(Embed{Table: w, Rows: g.rows, X: x, T: 1, Scale: 5.5})
	for i := range 12 {
		if got, want := g.h.Float32(x)[i], float32(wv[29*12+i])*5.5; got != want {
			t.Fatalf("element %d: %v, wants %v", i, got, want)
		}
	}
}

// Norms over all heads come before RoPE, whether attention does that or QKV.
func TestQKVNormsOverAllHeads(t *testing.T) {
	const heads, kvHeads, d, hidden = 4, 2, 8, 20
	g := newRig(t, kvHeads, d)
	q, qv := g.weight(F32, heads*d, hidden)
	k, kv := g.weight(F32, kvHeads*d, hidden)
	v, _ := g.weight(BF16, kvHeads*d, hidden)
	x, xv := g.random(hidden)
	norm, nv := g.random(hidden)
	widths, wv := g.random((heads + kvHeads) * d)
	rope, _ := g.random(rigContext * d)
	for i := range g.h.Float32(rope) {
		g.h.Float32(rope)[i] = float32((i + 1) % 2) // rotates nothing
	}
	before, err := AllocKVBeforeRoPE(g.h, 1, kvHeads*d, d)
	g.must(err)
	g.stage(Step{Rows: []Row{{0, 0, 0}}, Pages: []PageEntry{{0, 0, 1}}}, 1, 0)
	out := g.poisoned(heads * d)
	o := QKV{X: x, Norm: norm, Q: q, K: k, V: v, WidthNorms: widths, RoPE: rope, Rows: g.rows, Slots: g.slots, KV: g.kv,
		Out: out, T: 1, Hidden: hidden, Heads: heads, Eps: 1e-5, BeforeRoPE: before}
	n := normed(xv, nv, 1e-5)
	wantQ, wantK := normed(narrow(times(qv, n)), wv[:heads*d], 1e-5), normed(narrow(times(kv, n)), wv[heads*d:], 1e-5)
	for _, o.DeferRoPE = range []bool{true, false} {
		g.launch(o)
		for i, want := range wantQ {
			if got := g.h.Float32(out)[i]; !near(got, want, 8*hidden) {
				t.Fatalf("deferred %t: q[%d] is %v, wants %v", o.DeferRoPE, i, got, want)
			}
		}
		for i, want := range wantK {
			got := g.h.Float32(before.Data)[i]
			if !o.DeferRoPE {
				got = g.h.Float32(g.kv.Data)[g.kv.at(1, 0, 0, i/d)+i%d]
			}
			if !near(got, want, 8*hidden) {
				t.Fatalf("deferred %t: k[%d] is %v, wants %v", o.DeferRoPE, i, got, want)
			}
		}
	}
	o.Bias = widths
	if err := g.stream.Launch(o); !errors.Is(err, device.ErrBadShape) {
		t.Errorf("norms over all heads beside biases: %v, wants ErrBadShape", err)
	}
}

func narrow(x []float64) (y []float32) {
	for _, v := range x {
		y = append(y, float32(v))
	}
	return y
}

// The ops of branches refuse buffers that are too small, and a hand-over of what is not the sum.
func TestBranchesRefuseSmallBuffers(t *testing.T) {
	g := newRig(t, 1, 8)
	w, _ := g.weight(BF16, 8, 8)
	big, _ := g.random(64)
	small := big.Slice(0, 4*7)
	for _, op := range []device.Op{
		AddNorm{Branch: small, Norm: big, X: big, T: 1, Cols: 8},
		AddNorm{Branch: big, Norm: small, X: big, T: 1, Cols: 8},
		AddNorm{Branch: big, Norm: big, X: small, T: 1, Cols: 8},
		AddNorm{Branch: big, Norm: big, X: big, RowIndex: small, T: 8, Cols: 8},
		Projection{W: w, In: big, X: big, T: 1, Bias: small},
		Projection{W: w, In: big, X: big, T: 1, Store: true, Handover: Handover{Rounded: big}},
	} {
		if err := g.stream.Launch(op); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%+v: %v, wants ErrBadShape", op, err)
		}
	}
}
