package kernels

import (
	"math"
	"testing"

	"reel.internal/reel/kernels/device"
)

// reference keeps a sequence's keys and values in order, in float64.
type reference struct{ k, v [][]float64 }

// rotated returns RoPE of one head in float64, by the definition.
func rotated(x []float64, position int, theta float64) []float64 {
	d := len(x)
	y := make([]float64, d)
	for i := range d / 2 {
		angle := float64(position) * math.Pow(theta, -2*float64(i)/float64(d))
		sin, cos := math.Sincos(angle)
		y[i] = x[i]*cos - x[i+d/2]*sin
		y[i+d/2] = x[i+d/2]*cos + x[i]*sin
	}
	return y
}

func rotatedHeads(x []float64, d, position int, theta float64) []float64 {
	var y []float64
	for ; len(x) > 0; x = x[d:] {
		y = append(y, rotated(x[:d], position, theta)...)
	}
	return y
}

// Two sequences of different lengths, first in one step and then row by row, over pages in random
// order, equal attention computed plainly: as in Llama, and with the biases, head norms, windows,
// softcaps and sinks of other model families.
func TestAttentionOverShuffledPages(t *testing.T) {
	for _, shape := range []struct {
		heads, kvHeads, d int
		bias, headNorms   bool
		window            int
		softcap           float32
		sinks             bool
	}{{4, 2, 8, false, false, 0, 0, false}, {3, 3, 6, false, false, 0, 0, false}, {8, 1, 16, false, false, 0, 0, false},
		{4, 2, 8, true, false, 0, 0, false}, {4, 2, 8, false, true, 0, 0, false}, {4, 2, 8, false, false, 5, 0, false},
		{8, 1, 16, true, true, rigPage + 1, 0, false}, {3, 3, 6, true, true, 1, 0, false},
		{2, 1, 256, false, false, 5, 2, false}, {4, 2, 8, true, false, rigPage, 0, true},
		{4, 2, 8, false, true, 0, 1, true}} {
		a := newAttentionTest(t, shape.heads, shape.kvHeads, shape.d)
		a.window, a.softcap = shape.window, shape.softcap
		if shape.sinks {
			a.sinks, a.sinkValues = a.random(shape.heads)
		}
		if shape.bias {
			a.q.Bias, a.bias = a.random((shape.heads + 2*shape.kvHeads) * shape.d)
		}
		if shape.headNorms {
			a.q.HeadNorms, a.headNorms = a.random(2 * shape.d)
		}
		lengths := []int{9, 5}
		a.step([]int{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, 16)
		for i := range rigContext - 9 {
			a.deferred = i%2 == 0 && (shape.bias || shape.headNorms)
			a.step([]int{1, 0}[:1+min(1, rigContext-1-lengths[0])], 3)
			lengths[0]++
		}
	}
}

type attentionTest struct {
	*rig
	heads  int
	q      QKV
	wq     []float64
	wk     []float64
	wv     []float64
	norm   []float32
	seq    [2]reference
	hidden int

	bias, headNorms []float32 // nil for none
	window          int
	softcap         float32
	sinks           device.Buffer
	sinkValues      []float32 // nil for none
	deferred        bool      // QK post-processing is left to Attend
}

const testTheta = 10000

func newAttentionTest(t *testing.T, heads, kvHeads, d int) *attentionTest {
	g := newRig(t, kvHeads, d)
	a := &attentionTest{rig: g, heads: heads, hidden: 24}
	a.q = QKV{Rows: g.rows, Slots: g.slots, KV: g.kv, Layer: 1, Hidden: a.hidden, Heads: heads, Eps: 1e-5}
	a.q.Q, a.wq = g.weight(F32, heads*d, a.hidden)
	a.q.K, a.wk = g.weight(F32, kvHeads*d, a.hidden)
	a.q.V, a.wv = g.weight(F32, kvHeads*d, a.hidden)
	a.q.Norm, a.norm = g.random(a.hidden)
	var err error
	a.q.BeforeRoPE, err = AllocKVBeforeRoPE(g.h, 3, kvHeads*d, d)
	g.must(err)
	var table []float32
	for p := range rigContext {
		for i := range d / 2 {
			sin, cos := math.Sincos(float64(p) * math.Pow(testTheta, -2*float64(i)/float64(d)))
			table = append(table, float32(cos), float32(sin))
		}
	}
	a.q.RoPE, err = LoadVector(g.h, table)
	g.must(err)
	return a
}

// step runs one step with the next token of each sequence in of, padded to T rows.
func (a *attentionTest) step(of []int, T int) {
	a.t.Helper()
	d := a.kv.HeadDim
	x, xv := a.random(T * a.hidden)
	a.q.X, a.q.T = x, T
	a.q.Out = a.poisoned(T * a.heads * d)
	s, want := Step{}, [][]float64(nil)
	for i, seq := range of {
		row := xv[i*a.hidden : (i+1)*a.hidden]
		s.Rows = append(s.Rows, a.row(&s, seq))
		want = append(want, a.attend(seq, normed(row, a.norm, 1e-5)))
	}
	a.stage(s, T, 0)
	out := a.poisoned(T * a.heads * d)
	q, attend := a.q, Attend{Q: a.q.Out, Rows: a.rows, Slots: a.slots, KV: a.kv, Out: out, T: T, Layer: 1,
		Heads: a.heads, Scale: float32(1 / math.Sqrt(float64(d))), Window: a.window, Softcap: a.softcap, Sinks: a.sinks}
	if a.deferred {
		q.DeferRoPE, attend.Post = true, q.Post()
	}
	a.launch(q)
	for range 2 { // Attend does not change its inputs, so that running it again changes nothing
		a.launch(attend)
	}
	for i, w := range want {
		for j := range w {
			if got := a.h.Float32(out)[i*len(w)+j]; !near(got, w[j], 200) {
				a.t.Fatalf("%d heads over %d, row %d (sequence %d), element %d: %v, wants %v", a.heads, a.kv.Heads, i,
					of[i], j, got, w[j])
			}
		}
	}
}

// row returns the next row of sequence seq. If the row starts a page, it adds the page to s.
func (a *attentionTest) row(s *Step, seq int) Row {
	at := len(a.seq[seq].k)
	if at%rigPage == 0 {
		page := a.pages[0]
		a.pages = a.pages[1:]
		s.Pages = append(s.Pages, PageEntry{Slot: int32(seq), Index: int32(at / rigPage), Page: page})
	}
	return Row{Slot: int32(seq), Position: int32(at), Token: 0}
}

// attend appends the row's key and value to the reference and returns attention over it.
func (a *attentionTest) attend(seq int, n []float64) []float64 {
	d, r := a.kv.HeadDim, &a.seq[seq]
	position := len(r.k)
	qn, kn := a.heads*d, a.kv.Heads*d
	r.k = append(r.k, rotatedHeads(a.prepared(times(a.wk, n), qn, d), d, position, testTheta))
	r.v = append(r.v, a.biased(times(a.wv, n), qn+kn))
	q := rotatedHeads(a.prepared(times(a.wq, n), 0, 0), d, position, testTheta)
	first := 0
	if a.window > 0 {
		first = max(0, position+1-a.window)
	}
	out := make([]float64, len(q))
	for head := range a.heads {
		kv := head / (a.heads / a.kv.Heads) * d
		weights, sum := make([]float64, len(r.k)), 0.0
		if a.sinkValues != nil {
			sum = math.Exp(float64(a.sinkValues[head]))
		}
		for j := first; j < len(r.k); j++ {
			var dot float64
			for i := range d {
				dot += q[head*d+i] * r.k[j][kv+i]
			}
			score := Attend{Softcap: a.softcap}.capped(dot / math.Sqrt(float64(d)))
			weights[j] = math.Exp(score)
			sum += weights[j]
		}
		for j := first; j < len(r.v); j++ {
			for i := range d {
				out[head*d+i] += weights[j] / sum * r.v[j][kv+i]
			}
		}
	}
	return out
}

// biased adds the biases from index at on to y.
func (a *attentionTest) biased(y []float64, at int) []float64 {
	for i := range y {
		if a.bias != nil {
			y[i] += float64(a.bias[at+i])
		}
	}
	return y
}

// prepared returns y plus the biases from biasAt on, with its heads normed by the head norms from
// normAt on.
func (a *attentionTest) prepared(y []float64, biasAt, normAt int) []float64 {
	y = a.biased(y, biasAt)
	if a.headNorms == nil {
		return y
	}
	d := a.kv.HeadDim
	var out []float64
	for ; len(y) > 0; y = y[d:] {
		head := make([]float32, d)
		for i := range head {
			head[i] = float32(y[i])
		}
		out = append(out, normed(head, a.headNorms[normAt:normAt+d], 1e-5)...)
	}
	return out
}
