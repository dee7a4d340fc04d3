//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// The sweep covers all numbers of rows, head sizes and shares of KV heads that models have, at
// random odd sizes, with bfloat16 and float16 weights. It checks each element, and each row as a
// whole; NaN and infinity pass neither check.

// rowsClose is close, and also fails if a row of width elements has a relative error above
// within: ‖difference‖ / ‖host's‖. For a row smaller than the average, which may be next to
// nothing, the error is relative to the average row.
func (b *both) rowsClose(name string, x twin, width int, atol, rtol, within float64) {
	b.t.Helper()
	b.close(name, x, atol, rtol)
	b.rowsWithin(name, read[float32](b, 1, x[1]), read[float32](b, 0, x[0]), width, within)
}

func (b *both) rowsWithin(name string, got, want []float32, width int, within float64) {
	b.t.Helper()
	rows, all := len(want)/width, 0.
	for _, w := range want {
		all += float64(w) * float64(w)
	}
	for row := range rows {
		var diff, size float64
		for i := row * width; i < (row+1)*width; i++ {
			d, w := float64(got[i])-float64(want[i]), float64(want[i])
			diff, size = diff+d*d, size+w*w
		}
		if most := within * math.Sqrt(max(size, all/float64(rows))); !(math.Sqrt(diff) <= most) {
			b.t.Fatalf("%s: row %d is off by %.1e, wants at most %.1e", name, row, math.Sqrt(diff), most)
		}
	}
}

// classAndWorkspace is how an op is launched: its class, and whether Workspace.Rounded is set.
type classAndWorkspace struct{ prefill, rounded bool }

var classes = []classAndWorkspace{{false, false}, {false, true}, {true, false}, {true, true}}

// roundedOf returns a Workspace.Rounded for rows of cols columns, or none.
func (b *both) roundedOf(c classAndWorkspace, rows, cols int) device.Buffer {
	if !c.rounded {
		return device.Buffer{}
	}
	return b.roundedFor(rows, cols)
}

// Products of 1 to 64 rows of any width, of both classes, with and without a workspace for
// rounded rows.
func TestCUDAOpProducts(t *testing.T) {
	for rows := 1; rows <= 64; rows++ {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			b := newBoth(t)
			out := 1 + b.r.IntN(300)
			if rows%4 < 2 {
				out = 16 * (1 + b.r.IntN(19)) // multiples of 16, as stream-K requires
			}
			b.products([]kernels.DType{kernels.BF16, kernels.F16}[rows%2], rows, 16*(1+b.r.IntN(64)), out, classes)
		})
	}
}

// fewOutputs bounds the relative error of products whose weights are rounded to binary16, where few outputs may all be
// small by chance. The tests of products over codes have the narrow bound, roundedWeights.
const fewOutputs = 20 * roundedWeights

// roundsWeights reports whether prompts over a quantised weight may be multiplied by kernels that round its values.
func (c classAndWorkspace) roundsWeights(dtype kernels.DType) bool {
	return c.prefill && c.rounded && dtype.Quantised()
}

// products checks the products of rows of in columns to out outputs, launched in each of classes.
func (b *both) products(dtype kernels.DType, rows, in, out int, classes []classAndWorkspace) {
	b.t.Helper()
	w, up := b.matrix(dtype, out, in), b.matrix(dtype, out, in)
	x, norm, start := put(b, b.normal(rows*in, 2)), put(b, b.powers(in)), b.normal(rows*out, 1)
	sample := make([]int32, rows)
	for i := range sample {
		sample[i] = b.r.Int32N(int32(rows))
	}
	samples, partials := put(b, sample), b.partialsFor(rows)
	for _, c := range classes {
		name := fmt.Sprintf("type %d, %d rows of %d to %d, %+v", dtype, rows, in, out, c)
		workspace := kernels.Workspace{Rounded: b.roundedOf(c, rows, in), Partials: partials}
		residual, gated, logits := put(b, start), b.poisoned(rows*out), b.poisoned(rows*out)
		b.run(func(on int) device.Op {
			return kernels.Projection{W: w[on], In: x[on], X: residual[on], Workspace: workspace, T: rows,
				Class: classOf(c.prefill)}
		})
		if c.roundsWeights(dtype) {
			b.near("projection, "+name, residual, start, fewOutputs)
		} else {
			b.rowsClose("projection, "+name, residual, out, 2*sums(in), 1e-5, 2e-5)
		}
		b.run(func(on int) device.Op {
			return kernels.GateUp{X: x[on], Norm: norm[on], Gate: w[on], Up: up[on], Out: gated[on],
				Workspace: workspace, T: rows, Class: classOf(c.prefill), Eps: 1e-5}
		})
		if c.roundsWeights(dtype) {
			b.near("gateup, "+name, gated, nil, fewOutputs)
		} else {
			b.rowsClose("gateup, "+name, gated, out, 8*sums(in), 1e-5, 1e-4)
		}
		b.run(func(on int) device.Op {
			return kernels.Head{X: x[on], Norm: norm[on], W: w[on], Rows: kernels.Rows{Sample: samples[on]},
				Logits: logits[on], Workspace: kernels.Workspace{Rounded: workspace.Rounded}, T: rows, N: rows,
				Eps: 1e-5}
		})
		b.rowsClose("head, "+name, logits, out, 4*sums(in), 1e-5, 1e-4)
	}
}

// eachHeads runs a test for all head sizes and shares of KV heads.
func eachHeads(t *testing.T, run func(b *both, dim, group int)) {
	for _, dim := range []int{64, 96, 128} {
		for group := 1; group <= 8; group++ {
			t.Run(fmt.Sprintf("%d/%d", dim, group), func(t *testing.T) { run(newBoth(t), dim, group) })
		}
	}
}

func TestCUDAOpQKV(t *testing.T) {
	eachHeads(t, func(b *both, dim, group int) {
		rows, hidden, kvHeads := 1+b.r.IntN(64), 16*(1+b.r.IntN(40)), 1+b.r.IntN(3)
		dtype, kvType := []kernels.DType{kernels.BF16, kernels.F16}[group%2],
			[]kernels.DType{kernels.BF16, kernels.F32, kernels.F16}[(group+dim/32)%3]
		c := classes[b.r.IntN(len(classes))]
		b.qkv(c, b.newAttention(dtype, kvType, rows, hidden, kvHeads*group, kvHeads, dim))
	})
}

// qkv checks a, launched as c.
func (b *both) qkv(c classAndWorkspace, a attention) {
	b.t.Helper()
	o := &a.op[1]
	o.Workspace.Rounded, o.Workspace.Partials, o.Class = b.roundedOf(c, o.T, o.Hidden), b.partialsFor(o.T),
		classOf(c.prefill)
	name := fmt.Sprintf("type %d, %d rows of %d, KV type %d, %+v", o.Q.DType, o.T, o.Hidden, o.KV.DType, c)
	b.run(func(on int) device.Op { return a.op[on] })
	dim := o.KV.HeadDim
	if c.roundsWeights(o.Q.DType) {
		b.near(name, a.out, nil, fewOutputs)
	} else {
		b.rowsClose(name, a.out, dim, 8*sums(o.Hidden), 1e-5, 1e-4)
	}
	got, want := asFloat32(o.KV.DType, read[byte](b, 1, o.KV.Data)), read[float32](b, 0, a.op[0].KV.Data)
	for i := 0; i < len(want); i += dim {
		if written := !math.IsNaN(float64(want[i])); written {
			b.rowsWithin(name+", keys and values", got[i:i+dim], want[i:i+dim], dim, 1e-2)
		} else if !math.IsNaN(float64(got[i])) {
			b.t.Fatalf("%s: element %d of the pool was written", name, i)
		}
	}
}

// Contexts of 1 to 4,096 positions, and 1 to 64 rows of several sequences.
func TestCUDAOpAttend(t *testing.T) {
	eachHeads(t, func(b *both, dim, group int) {
		edges := []int{1, 15, 16, 17, 31, 32, 33, 255, 256, 257, 1024, 4096}
		for _, context := range []int{edges[b.r.IntN(len(edges))], 1 + b.r.IntN(4096)} {
			kvHeads := 1 + b.r.IntN(3)
			a := newAttending(b, kvHeads*group, kvHeads, dim, context)
			rows := b.r.Perm(len(a.row))[:1+b.r.IntN(min(64, len(a.row)))]
			for _, a.prefill = range []bool{false, true} {
				a.attend(rows, min(64, len(rows)+b.r.IntN(3)), true)
			}
		}
	})
}

// Verify passes of up to 8 sequences against the host, and each row against plain decode.
func TestCUDAOpAttendVerify(t *testing.T) {
	eachHeads(t, func(b *both, dim, group int) {
		for _, context := range []int{20, 300, 1500} {
			s := randomVerify(b, 8)
			s.dim, s.group, s.context = dim, group, context
			a := newVerifying(b, s)
			a.near()
			a.compare()
		}
	})
}

// A row check that passed NaN would pass anything.
func TestCUDASweepRefusesNaN(t *testing.T) {
	for name, got := range map[string][]float32{"not a number": {1, float32(math.NaN())},
		"infinite": {1, float32(math.Inf(1))}, "off": {1, 2.1}} {
		b := &both{t: t}
		if !b.fails(func() { b.rowsWithin(name, got, []float32{1, 2}, 2, 1e-2) }) {
			t.Errorf("a row that is %s passed", name)
		}
	}
}

// fails reports whether a check fails.
func (b *both) fails(check func()) bool {
	t, r := b.t, &recorder{TB: b.t}
	b.t = r
	defer func() { b.t = t }()
	func() {
		defer func() { _ = recover() }()
		check()
	}()
	return r.failed
}

// recorder is a testing.TB that records its failure.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
	panic("failed")
}
