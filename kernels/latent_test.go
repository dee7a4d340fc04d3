package kernels

import (
	"errors"
	"math"
	"testing"

	"reel.internal/reel/kernels/device"
)

// latentTest is a layer of multi-head latent attention with its weights in float64, and two sequences.
type latentTest struct {
	*rig
	qkv            LatentQKV
	absorb, expand HeadProduct
	attend         Attend
	wq, wc, uk, uv []float64 // uk and uv as in a checkpoint: [heads][nope][latent], [heads][value][latent]
	down           []float64 // of the query's latent, or none
	norm, latNorm  []float32
	downNorm       []float32
	value          int
	latents, ropes [2][][]float64 // of the tokens of each sequence
}

const latentHidden = 20

func newLatentTest(t *testing.T, heads, nope, rope, latent, value, window, queryLatent int) *latentTest {
	g := newRig(t, 1, latent+rope)
	g.kv.Values = latent
	g.kv.Data = g.poisoned(int(g.kv.PageBytes()/4) * g.kv.Pages)
	a := &latentTest{rig: g, value: value}
	o := LatentQKV{Rows: g.rows, Slots: g.slots, KV: g.kv, Layer: 1, Hidden: latentHidden, Heads: heads, Nope: nope,
		Eps: 1e-5, LatentEps: 0.1}
	in := latentHidden
	if queryLatent > 0 {
		in = queryLatent
		o.QueryDown, a.down = g.weight(F32, in, latentHidden)
		o.QueryNorm, a.downNorm = g.random(in)
	}
	o.Q, a.wq = g.weight(F32, heads*(nope+rope), in)
	o.C, a.wc = g.weight(F32, latent+rope, latentHidden)
	o.Norm, a.norm = g.random(latentHidden)
	o.LatentNorm, a.latNorm = g.random(latent)
	var table []float32
	for p := range rigContext {
		for i := range rope / 2 {
			sin, cos := math.Sincos(float64(p) * math.Pow(testTheta, -2*float64(i)/float64(rope)))
			table = append(table, float32(cos), float32(sin))
		}
	}
	var err error
	o.RoPE, err = LoadVector(g.h, table)
	g.must(err)
	a.qkv = o
	a.attend = Attend{Rows: g.rows, Slots: g.slots, KV: g.kv, Layer: 1, Heads: heads, Window: window,
		Scale: float32(1 / math.Sqrt(float64(nope+rope)))}
	a.absorb = HeadProduct{Heads: heads, InStride: nope + rope, OutStride: latent + rope}
	a.expand = HeadProduct{Heads: heads, InStride: latent, OutStride: value}
	a.expand.W, a.uv = g.weight(F32, heads*value, latent)
	a.uk = make([]float64, heads*nope*latent)
	transposed := make([]float32, len(a.uk)) // [heads][latent][nope]
	for i := range transposed {
		transposed[i] = float32(g.r.NormFloat64()) / float32(math.Sqrt(float64(latent)))
		head, l, n := i/nope/latent, i/nope%latent, i%nope
		a.uk[(head*nope+n)*latent+l] = float64(transposed[i])
	}
	data, err := LoadVector(g.h, transposed)
	g.must(err)
	a.absorb.W = Weight{Data: data, DType: F32, Rows: heads * latent, Cols: nope}
	return a
}

// step runs the next token of each sequence in of through all ops, padded to T rows.
func (a *latentTest) step(of []int, T int) {
	a.t.Helper()
	heads, d, latent := a.qkv.Heads, a.kv.HeadDim, a.kv.Values
	x, values := a.random(T * latentHidden)
	s, want := Step{}, [][]float64(nil)
	for i, seq := range of {
		at := len(a.latents[seq])
		if at%rigPage == 0 {
			s.Pages = append(s.Pages, PageEntry{Slot: int32(seq), Index: int32(at / rigPage), Page: a.pages[0]})
			a.pages = a.pages[1:]
		}
		s.Rows = append(s.Rows, Row{Slot: int32(seq), Position: int32(at)})
		want = append(want, a.exact(seq, normed(values[i*latentHidden:][:latentHidden], a.norm, 1e-5)))
	}
	a.stage(s, T, 0)
	qkv, absorb, attend, expand := a.qkv, a.absorb, a.attend, a.expand
	qkv.X, qkv.T, absorb.T, attend.T, expand.T = x, T, T, T, T
	qkv.Products, qkv.Out = a.poisoned(T*(qkv.Q.Rows+qkv.C.Rows+qkv.QueryDown.Rows)), a.poisoned(T*heads*d)
	absorb.In, absorb.Out, attend.Q = qkv.Products, qkv.Out, qkv.Out
	attend.Out = a.poisoned(T * heads * latent)
	expand.In, expand.Out = attend.Out, a.poisoned(T*heads*a.value)
	for _, op := range []device.Op{qkv, absorb, attend, expand} {
		a.launch(op)
	}
	for i, w := range want {
		for j := range w {
			if got := a.h.Float32(expand.Out)[i*len(w)+j]; !near(got, w[j], 400) {
				a.t.Fatalf("%d heads, latent %d, row %d of sequence %d, element %d: %v, wants %v", heads, latent, i, of[i],
					j, got, w[j])
			}
		}
	}
}

// exact appends the row's latent to the sequence, and returns attention over keys and values of heads, as transformers
// expands them: key of head h at j is [Wuk_h·latent_j, rope_j].
func (a *latentTest) exact(seq int, n []float64) []float64 {
	o := a.qkv
	latent, rope, position := o.KV.Values, o.rope(), len(a.latents[seq])
	c := times(a.wc, n)
	raw := make([]float32, latent)
	for i := range raw {
		raw[i] = float32(c[i])
	}
	a.latents[seq] = append(a.latents[seq], normed(raw, a.latNorm, 0.1))
	a.ropes[seq] = append(a.ropes[seq], rotated(c[latent:], position, testTheta))
	first := 0
	if a.down != nil {
		low := times(a.down, n)
		raw = make([]float32, len(low))
		for i := range raw {
			raw[i] = float32(low[i])
		}
		n = normed(raw, a.downNorm, 0.1)
	}
	q := times(a.wq, n)
	if a.attend.Window > 0 {
		first = max(0, position+1-a.attend.Window)
	}
	var out []float64
	for head := range o.Heads {
		mine := q[head*(o.Nope+rope):][:o.Nope+rope]
		turned := rotated(mine[o.Nope:], position, testTheta)
		sum, value := 0.0, make([]float64, a.value)
		for j := first; j <= position; j++ {
			key := times(a.uk[head*o.Nope*latent:][:o.Nope*latent], a.latents[seq][j])
			score := dot(mine[:o.Nope], key) + dot(turned, a.ropes[seq][j])
			weight := math.Exp(score * float64(a.attend.Scale))
			sum += weight
			for i, v := range times(a.uv[head*a.value*latent:][:a.value*latent], a.latents[seq][j]) {
				value[i] += weight * v
			}
		}
		for i := range value {
			value[i] /= sum
		}
		out = append(out, value...)
	}
	return out
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// Latent attention over absorbed queries equals attention over the keys and values of heads that it stands for: two
// sequences over pages in random order, first in one step and then row by row; with and without a latent of queries.
func TestLatentAttention(t *testing.T) {
	for _, s := range []struct{ heads, nope, rope, latent, value, window, queryLatent int }{{4, 6, 4, 16, 5, 0, 0},
		{1, 8, 2, 8, 8, 0, 12}, {6, 4, 8, 12, 7, 5, 0}, {2, 32, 16, 96, 24, 0, 24}} {
		a := newLatentTest(t, s.heads, s.nope, s.rope, s.latent, s.value, s.window, s.queryLatent)
		a.step([]int{0, 0, 0, 0, 0, 0, 0, 1, 1, 1}, 12)
		for i := range 9 {
			a.step([]int{1, 0}[:1+i%2], 2+i%3)
		}
	}
}

// Attention over latents refuses deferred RoPE and rounded results, which no kernel has.
func TestLatentAttendRefusesPostAndHandover(t *testing.T) {
	a := newLatentTest(t, 2, 6, 4, 16, 5, 0, 0)
	a.attend.T, a.attend.Q, a.attend.Out = 1, a.poisoned(2*20), a.poisoned(2*16)
	if err := a.attend.Check(); err != nil {
		t.Fatal(err)
	}
	post, rounded := a.attend, a.attend
	before, err := AllocKVBeforeRoPE(a.h, 1, 1*20, 20)
	a.must(err)
	post.Post = QKPost{RoPE: a.poisoned(20 * rigContext), BeforeRoPE: before}
	rounded.Handover.Rounded = a.attend.Q
	for _, op := range []Attend{post, rounded} {
		if err := op.Check(); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%v, wants ErrBadShape", err)
		}
	}
}

// The ops of latent attention refuse wrong shapes.
func TestLatentAttentionRefusesShapes(t *testing.T) {
	a := newLatentTest(t, 2, 6, 4, 16, 5, 0, 0)
	qkv, product := a.qkv, a.absorb
	qkv.T, qkv.X, qkv.Products, qkv.Out = 1, a.poisoned(latentHidden), a.poisoned(40), a.poisoned(40)
	product.T, product.In, product.Out = 1, qkv.Products, qkv.Out
	if err := errors.Join(qkv.Check(), product.Check()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(q *LatentQKV, p *HeadProduct){
		"two KV heads":     func(q *LatentQKV, _ *HeadProduct) { q.KV.Heads = 2 },
		"no latent":        func(q *LatentQKV, _ *HeadProduct) { q.KV.Values = 0 },
		"no RoPE":          func(q *LatentQKV, _ *HeadProduct) { q.KV.Values = 20 },
		"short products":   func(q *LatentQKV, _ *HeadProduct) { q.Products = q.Products.Slice(0, 4*39) },
		"weights of c":     func(q *LatentQKV, p *HeadProduct) { q.C = p.W },
		"a query's latent": func(q *LatentQKV, _ *HeadProduct) { q.QueryDown = q.C },
		"heads":            func(_ *LatentQKV, p *HeadProduct) { p.Heads = 3 },
		"narrow results":   func(_ *LatentQKV, p *HeadProduct) { p.OutStride = 15 },
		"narrow input":     func(_ *LatentQKV, p *HeadProduct) { p.InStride = 5 },
		"short results":    func(_ *LatentQKV, p *HeadProduct) { p.T = 2 },
		"columns of W":     func(_ *LatentQKV, p *HeadProduct) { p.W.Cols = 7 },
		"rows without end": func(_ *LatentQKV, p *HeadProduct) { p.Heads = 0 },
	} {
		q, p := qkv, product
		change(&q, &p)
		if err := errors.Join(q.Check(), p.Check()); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("%s: %v, wants ErrBadShape", name, err)
		}
	}
}
