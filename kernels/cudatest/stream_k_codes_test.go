//go:build cuda

package cudatest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// streamedFormats are the quantised formats that stream-K multiplies.
var streamedFormats = []kernels.DType{kernels.Q4_0, kernels.Q8_0, kernels.Q4_K, kernels.Q6_K, kernels.Q5_K, kernels.F8,
	kernels.G4_128}

// codesRows are the numbers of prompt tokens at which kernels over quantised weights change, and their neighbors.
var codesRows = []int{1, 16, 17, 56, 57, 104, 105, 152, 153, 200, 201, 208, 209, 400}

// codesCols returns a number of columns that a format can have.
func codesCols(t kernels.DType, i int) int {
	switch t {
	case kernels.Q4_0, kernels.Q8_0:
		return []int{32, 4096, 800, 11008}[i%4]
	case kernels.F8, kernels.G4_128:
		return []int{128, 4096, 896, 11008}[i%4]
	}
	return []int{256, 4096, 768, 11008}[i%4]
}

// roundedWeights bounds the error of products whose weights are rounded to binary16, relative to the results: a weight
// has one of 1.8e-4 to 3.3e-4 (notes/codes_prefill.md). Activations of these tests are exact.
const roundedWeights = 5e-4

// near fails if results on the GPU are not near the host's: if their error, as a root mean square, is more than `most`
// of that of the host's results less what they began with, or an element's more than twelve times that. It returns the
// relative error.
func (b *both) near(name string, x twin, start []float32, most float64) float64 {
	b.t.Helper()
	got, want := read[float32](b, 1, x[1]), read[float32](b, 0, x[0])
	var errors, squares float64
	for i, w := range want {
		d := float64(w)
		errors += (float64(got[i]) - d) * (float64(got[i]) - d)
		if start != nil {
			d -= float64(start[i])
		}
		squares += d * d
	}
	relative := math.Sqrt(errors / squares)
	if !(relative <= most) {
		b.t.Fatalf("%s: relative error %.1e, wants %.1e", name, relative, most)
	}
	at := 12 * most * math.Sqrt(squares/float64(len(want)))
	b.closeTo(name, got, want, func(int) float64 { return at }, 0)
	return relative
}

func TestCUDAPrefillProjectionOfCodes(t *testing.T) {
	b := newBoth(t)
	for _, format := range streamedFormats {
		for i, rows := range codesRows {
			in, hidden := codesCols(format, i), []int{64, 112, 272, 16, 1280}[i%5]
			w := b.matrix(format, hidden, in)
			start := b.normal(rows*hidden, 1)
			x, res, workspace := put(b, b.normal(rows*in, 1)), put(b, start), b.workspaceFor(rows, in)
			b.run(func(on int) device.Op {
				return kernels.Projection{W: w[on], In: x[on], X: res[on], Workspace: workspace, T: rows,
					Class: kernels.Prefill}
			})
			name := fmt.Sprintf("format %d, %d rows of %d to %d", format, rows, in, hidden)
			t.Logf("%s: relative error %.1e", name, b.near(name, res, start, roundedWeights))
		}
	}
}

func TestCUDAPrefillGateUpOfCodes(t *testing.T) {
	b := newBoth(t)
	for _, format := range streamedFormats {
		for i, rows := range []int{9, 57, 153, 209} {
			hidden, inner := codesCols(format, i), []int{64, 96, 272, 16}[i%4]
			gate, up := b.matrix(format, inner, hidden), b.matrix(format, inner, hidden)
			x, norm, out := put(b, b.normal(rows*hidden, 3)), put(b, b.powers(hidden)), b.poisoned(rows*inner)
			workspace := b.workspaceFor(rows, hidden)
			b.run(func(on int) device.Op {
				return kernels.GateUp{X: x[on], Norm: norm[on], Gate: gate[on], Up: up[on], Out: out[on],
					Workspace: workspace, T: rows, Class: kernels.Prefill, Eps: 1e-5}
			})
			b.near(fmt.Sprintf("format %d, %d rows of %d to %d", format, rows, hidden, inner), out, nil, 2*roundedWeights)
		}
	}
}

func TestCUDAPrefillQKVOfCodes(t *testing.T) {
	b := newBoth(t)
	for f, format := range streamedFormats {
		const hidden = 512
		rows, dim, kvHeads, group := []int{10, 60, 140, 300}[f%4], []int{32, 64, 96, 128}[f%4], 1+f%2, []int{4, 2}[f%2]
		a := b.newAttention(kernels.BF16, kernels.F32, rows, hidden, kvHeads*group, kvHeads, dim)
		q, k, v := b.matrix(format, kvHeads*group*dim, hidden), b.matrix(format, kvHeads*dim, hidden),
			b.matrix(format, kvHeads*dim, hidden)
		for on := range a.op {
			a.op[on].Q, a.op[on].K, a.op[on].V = q[on], k[on], v[on]
		}
		a.op[1].Workspace, a.op[1].Class = b.workspaceFor(rows, hidden), kernels.Prefill
		b.run(func(on int) device.Op { return a.op[on] })
		name := fmt.Sprintf("format %d, %d rows", format, rows)
		b.near(name+": q", a.out, nil, roundedWeights)
		b.samePool(name, a, 40*roundedWeights)
	}
}

// With the same slices a row has the same bits in kernels of any size and in any batch, and the arrival counters are 0
// at the end.
func TestCUDACodesInAnyBatch(t *testing.T) {
	b := newBoth(t)
	defer func(most int) { tune.MaxWorkSlices, tune.StreamKTokens = most, 0 }(tune.MaxWorkSlices)
	const in, hidden, all = 2048, 704, 290
	for _, format := range streamedFormats {
		w, values, start := b.matrix(format, hidden, in)[1], b.normal(all*in, 1), b.normal(all*hidden, 1)
		workspace := b.workspaceFor(all, in)
		run := func(first, rows int) []uint32 {
			x, res := b.load(1, bytesOf(values[first*in:(first+rows)*in])), b.load(1, bytesOf(start[first*hidden:(first+rows)*hidden]))
			b.onGPU(kernels.Projection{W: w, In: x, X: res, Workspace: workspace, T: rows, Class: kernels.Prefill})
			return read[uint32](b, 1, res)
		}
		for _, tune.MaxWorkSlices = range []int{1, 5, 6, 7, 13, 24} {
			tune.StreamKTokens = 0
			want := run(0, all)
			for _, tune.StreamKTokens = range []int{16, 56, 104, 208} {
				name := fmt.Sprintf("format %d, at most %d slices, %d tokens per block", format, tune.MaxWorkSlices,
					tune.StreamKTokens)
				b.equal(name, run(0, all), want)
			}
			tune.StreamKTokens = 0
			for _, c := range []struct{ first, rows int }{{0, 1}, {7, 16}, {100, 100}, {150, 136}, {289, 1}} {
				b.equal(fmt.Sprintf("format %d: rows %d to %d", format, c.first, c.first+c.rows), run(c.first, c.rows),
					want[c.first*hidden:(c.first+c.rows)*hidden])
			}
			b.placesAreEmpty("codes", workspace)
		}
	}
}

// Handed-over rows give the same results as rows that each product rounds, up to the order of the sum of squares; and
// the same bits in any batch.
func TestCUDAHandoverOfCodes(t *testing.T) {
	b := newBoth(t)
	const all, hidden, inner = 230, 256, 512
	for _, formats := range [][2]kernels.DType{{kernels.Q8_0, kernels.Q6_K}, {kernels.Q6_K, kernels.Q4_0},
		{kernels.Q4_0, kernels.F16}, {kernels.F16, kernels.Q8_0}, {kernels.Q4_K, kernels.Q4_K},
		{kernels.Q8_0, kernels.Q4_K}, {kernels.Q4_K, kernels.Q6_K}} {
		gate, up, down := b.matrix(formats[0], inner, hidden), b.matrix(formats[0], inner, hidden),
			b.matrix(formats[1], hidden, inner)
		norm, values := put(b, b.normal(hidden, 1))[1], b.normal(all*hidden, 3)
		run := func(first, rows int, handover bool) []uint32 {
			x := b.load(1, bytesOf(values[first*hidden:(first+rows)*hidden]))
			return b.feedForward(x, rows, hidden, inner, [2]kernels.Weight{gate[1], up[1]}, down[1], norm, handover)
		}
		want, own := run(0, all, true), run(0, all, false)
		b.closeTo(fmt.Sprint(formats), viewOf[float32](bytesOf(want)), viewOf[float32](bytesOf(own)),
			func(int) float64 { return 1e-4 }, 1e-3)
		for _, c := range batches {
			b.equal(fmt.Sprintf("%v: rows %d to %d", formats, c.first, c.first+c.rows), run(c.first, c.rows, true),
				want[c.first*inner:(c.first+c.rows)*inner])
		}
	}
}

// Weights of several formats in one QKV are multiplied by a kernel each, of the same rounded rows.
func TestCUDAMixedQKVOfCodes(t *testing.T) {
	b := newBoth(t)
	const hidden, dim, kvHeads, group, rows = 1024, 64, 2, 2, 150
	for _, formats := range [][3]kernels.DType{{kernels.Q4_K, kernels.Q4_K, kernels.Q6_K},
		{kernels.Q8_0, kernels.Q4_0, kernels.Q8_0}, {kernels.Q6_K, kernels.Q8_0, kernels.Q8_0}} {
		a := b.newAttention(kernels.BF16, kernels.F32, rows, hidden, kvHeads*group, kvHeads, dim)
		q, k, v := b.matrix(formats[0], kvHeads*group*dim, hidden), b.matrix(formats[1], kvHeads*dim, hidden),
			b.matrix(formats[2], kvHeads*dim, hidden)
		for on := range a.op {
			a.op[on].Q, a.op[on].K, a.op[on].V = q[on], k[on], v[on]
		}
		a.op[1].Workspace, a.op[1].Class = b.workspaceFor(rows, hidden), kernels.Prefill
		b.run(func(on int) device.Op { return a.op[on] })
		b.near(fmt.Sprint(formats), a.out, nil, roundedWeights)
		b.samePool(fmt.Sprint(formats), a, 40*roundedWeights)
	}
}

// repeated returns a weight on the GPU whose rows repeat after 256.
func (b *both) repeated(t kernels.DType, rows, cols int) kernels.Weight {
	if !t.Quantised() {
		return b.matrix(t, rows, cols)[1]
	}
	w := b.matrix(t, 256, cols)[1]
	w.Data, w.Rows = b.load(1, bytes.Repeat(read[byte](b, 1, w.Data), rows/256)), rows
	return w
}

// BenchmarkPrefillOfCodes measures the products of 32 layers of 7B over prompts, all of one layer's weights, for
// bfloat16 and each streamed format. Each product rounds its rows.
func BenchmarkPrefillOfCodes(bench *testing.B) {
	for _, format := range append([]kernels.DType{kernels.BF16}, streamedFormats...) {
		name := "BF16"
		if i := slices.IndexFunc(quantisedFormats, func(f quantised) bool { return f.dtype == format }); i >= 0 {
			name = quantisedFormats[i].name
		}
		bench.Run(name, func(bench *testing.B) { prefillOfCodes(bench, name, format) })
	}
}

func prefillOfCodes(bench *testing.B, name string, format kernels.DType) {
	b := newBoth(bench)
	const hidden, inner, most = 4096, 11008, 400
	var squares []kernels.Weight
	for range 4 {
		squares = append(squares, b.repeated(format, hidden, hidden))
	}
	gate, up, down := b.repeated(format, inner, hidden), b.repeated(format, inner, hidden),
		b.repeated(format, hidden, inner)
	x, norm := b.load(1, bytesOf(b.normal(most*hidden, 1))), b.load(1, bytesOf(b.normal(hidden, 1)))
	mid, workspace := b.load(1, make([]byte, 4*most*inner)), b.workspaceFor(most, inner)
	out := b.load(1, make([]byte, 4*most*hidden))
	for _, T := range []int{10, 50, 100, 200, 400} {
		p := kernels.Projection{In: x, X: out, Workspace: workspace, T: T, Class: kernels.Prefill}
		var ops, gateUps, downs []device.Op
		for range 32 {
			for _, p.W = range squares {
				ops = append(ops, p)
			}
			gateUps = append(gateUps, kernels.GateUp{X: x, Norm: norm, Gate: gate, Up: up, Out: mid,
				Workspace: workspace, T: T, Class: kernels.Prefill, Eps: 1e-5})
			p := p
			p.W, p.In = down, mid
			downs = append(downs, p)
			ops = append(ops, gateUps[len(gateUps)-1], p)
		}
		ms := func(ops []device.Op) float64 {
			b.replayTimes(1, ops...)
			return float64(b.replayTimes(5, ops...)[2]) / float64(time.Millisecond)
		}
		fmt.Printf("%-6s T=%-3d all %7.3f ms, gate and up %7.3f, down %7.3f\n", name, T, ms(ops),
			ms(gateUps), ms(downs))
	}
}
