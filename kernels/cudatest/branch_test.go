//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Projections that store, that have biases, and that do both, of both classes and any number of rows.
func TestCUDAOpBranches(t *testing.T) {
	for i, rows := range oddRows {
		b := newBoth(t)
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.Q4_K} {
			b.branches(dtype, rows, 256*(1+i%4), 16*(1+b.r.IntN(40)))
		}
	}
}

// branches checks projections of rows of in columns to out outputs, and the norm after them.
func (b *both) branches(dtype kernels.DType, rows, in, out int) {
	b.t.Helper()
	w, x, bias, norm := b.matrix(dtype, out, in), put(b, b.normal(rows*in, 1)), put(b, b.normal(out, 1)), put(b, b.powers(out))
	start, partials := b.normal(rows*out, 1), b.partialsFor(rows)
	for kind := range 8 {
		c, stores, biased := classAndWorkspace{kind >= 4, kind >= 4}, kind&1 > 0, kind&2 > 0
		name := fmt.Sprintf("type %d, %d rows of %d to %d, %+v, stores %t, biased %t", dtype, rows, in, out, c, stores, biased)
		branch := b.poisoned(rows * out)
		if !stores {
			branch = put(b, start)
		}
		b.run(func(on int) device.Op {
			o := kernels.Projection{W: w[on], In: x[on], X: branch[on], T: rows, Store: stores, Class: classOf(c.prefill),
				Workspace: kernels.Workspace{Rounded: b.roundedOf(c, rows, in), Partials: partials}}
			if biased {
				o.Bias = bias[on]
			}
			return o
		})
		within := 2e-5
		if c.roundsWeights(dtype) {
			within = fewOutputs
		}
		b.rowsWithin("projection, "+name, read[float32](b, 1, branch[1]), read[float32](b, 0, branch[0]), out, within)
		stream := put(b, start)
		b.run(func(on int) device.Op {
			return kernels.AddNorm{Branch: branch[on], Norm: norm[on], X: stream[on], T: rows, Cols: out, Eps: 1e-5}
		})
		b.rowsWithin("norm, "+name, read[float32](b, 1, stream[1]), read[float32](b, 0, stream[0]), out, 4*within)
	}
}

// AddNorm equals the host's for rows of any width, also wider than its registers, and leaves rows without an index alone.
// A row has the same bits among others.
func TestCUDAOpAddNorm(t *testing.T) {
	b := newBoth(t)
	for _, cols := range []int{4, 36, 2048, 2052, 3584, 5120, 10244} {
		const rows = 5
		branch, norm, start := b.normal(rows*cols, 3), put(b, b.powers(cols)), b.normal(rows*cols, 1)
		index := put(b, []int32{0, 1, 2, -1, -1})
		all, x := put(b, branch), put(b, start)
		b.run(func(on int) device.Op {
			return kernels.AddNorm{Branch: all[on], Norm: norm[on], X: x[on], RowIndex: index[on], T: rows, Cols: cols,
				Eps: 1e-6}
		})
		scaled, stored := put(b, start), b.poisoned(rows*cols)
		for i, x := range []twin{scaled, stored} {
			b.run(func(on int) device.Op {
				return kernels.AddNorm{Branch: all[on], Norm: norm[on], X: x[on], RowIndex: index[on], T: rows, Cols: cols,
					Eps: 1e-6, Scale: 0.37, Store: i == 1}
			})
			b.closeTo(fmt.Sprintf("%d columns, scaled, stored: %d", cols, i), read[float32](b, 1, x[1])[:3*cols],
				read[float32](b, 0, x[0])[:3*cols], func(int) float64 { return 1e-5 }, 1e-5)
		}
		b.close(fmt.Sprintf("%d columns", cols), x, 1e-5, 1e-5)
		got := read[float32](b, 1, x[1])
		b.equal("padding", bits32(got[3*cols:]), bits32(start[3*cols:]))
		one, alone := put(b, branch[2*cols:3*cols]), put(b, start[2*cols:3*cols])
		b.onGPU(kernels.AddNorm{Branch: one[1], Norm: norm[1], X: alone[1], T: 1, Cols: cols, Eps: 1e-6})
		b.equal("alone", bits32(read[float32](b, 1, alone[1])), bits32(got[2*cols:3*cols]))
	}
}

// GELU, rows that are not normed, bounded logits and scaled embeddings.
func TestCUDAOpOfFamilies(t *testing.T) {
	for i, rows := range oddRows {
		b := newBoth(t)
		b.ofFamilies([]kernels.DType{kernels.BF16, kernels.F16, kernels.Q8_0}[i%3], rows, 256, 16*(1+b.r.IntN(20)))
	}
}

func (b *both) ofFamilies(dtype kernels.DType, rows, in, out int) {
	b.t.Helper()
	w, up, x := b.matrix(dtype, out, in), b.matrix(dtype, out, in), put(b, b.normal(rows*in, 2))
	ones := make([]float32, in)
	samples, tokens := make([]int32, rows), make([]int32, rows)
	for i := range ones {
		ones[i] = 1
	}
	for i := range samples {
		samples[i], tokens[i] = b.r.Int32N(int32(rows)), b.r.Int32N(int32(out))
	}
	samples[rows-1] = -1 // padding
	norm, sample, token, partials := put(b, ones), put(b, samples), put(b, tokens), b.partialsFor(rows)
	for _, c := range []classAndWorkspace{{false, false}, {true, true}} {
		name := fmt.Sprintf("type %d, %d rows of %d to %d, %+v", dtype, rows, in, out, c)
		gated, logits, embedded := b.poisoned(rows*out), b.poisoned(rows*out), b.poisoned(rows*in)
		b.run(func(on int) device.Op {
			return kernels.GateUp{X: x[on], Norm: norm[on], Gate: w[on], Up: up[on], Out: gated[on], T: rows,
				Workspace: kernels.Workspace{Rounded: b.roundedOf(c, rows, in), Partials: partials},
				Class:     classOf(c.prefill), Eps: kernels.NoNorm, Activation: kernels.GELUTanh}
		})
		if c.roundsWeights(dtype) {
			b.near("gateup, "+name, gated, nil, fewOutputs)
		} else {
			b.rowsClose("gateup, "+name, gated, out, 16*sums(in), 1e-4, 2e-4)
		}
		b.run(func(on int) device.Op {
			return kernels.Head{X: x[on], Norm: norm[on], W: w[on], Rows: kernels.Rows{Sample: sample[on]}, Logits: logits[on],
				T: rows, N: rows, Eps: 1e-5, Softcap: 1.5}
		})
		b.bounded("head, "+name, logits, out, rows-1)
		b.run(func(on int) device.Op {
			return kernels.Embed{Table: w[on], Rows: kernels.Rows{Token: token[on]}, X: embedded[on], T: rows, Scale: 50.5}
		})
		b.same("embedding, "+name, embedded)
	}
}

// bounded checks the logits of the first samples; those of the others must be untouched.
func (b *both) bounded(name string, logits twin, vocab, samples int) {
	b.t.Helper()
	got, want := read[float32](b, 1, logits[1]), read[float32](b, 0, logits[0])
	if samples > 0 {
		b.rowsWithin(name, got[:samples*vocab], want[:samples*vocab], vocab, 2e-4)
	}
	for i, v := range got[samples*vocab:] {
		if !math.IsNaN(float64(v)) {
			b.t.Fatalf("%s: logit %d of padding is %v", name, i, v)
		}
	}
}

// Norms over all heads of q and of k, before RoPE in qkv or in attention.
func TestCUDAOpWidthNorms(t *testing.T) {
	eachHeads(t, func(b *both, dim, group int) {
		rows, hidden, kvHeads := 1+b.r.IntN(64), 16*(1+b.r.IntN(40)), 1+b.r.IntN(3)
		c := classes[b.r.IntN(len(classes))]
		a := b.newAttention(kernels.BF16, kernels.BF16, rows, hidden, kvHeads*group, kvHeads, dim)
		norms, raw := put(b, b.powers(kvHeads*(group+1)*dim)), b.beforeRoPE(rows, kvHeads, dim)
		host, err := kernels.AllocKVBeforeRoPE(b.h, rows, kvHeads*dim, dim)
		b.must(err)
		for on := range a.op {
			a.op[on].WidthNorms, a.op[on].HeadEps = norms[on], 1e-6
			a.op[on].BeforeRoPE = []kernels.KVBeforeRoPE{host, raw}[on]
		}
		b.qkv(c, a)
		for on := range a.op {
			a.op[on].Class, a.op[on].DeferRoPE = kernels.Decode, true
		}
		b.run(func(on int) device.Op { return a.op[on] })
		b.rowsClose("q, deferred", a.out, dim, 8*sums(hidden), 1e-3, 1e-3)
		half := kvHeads * dim // of k, and as much of v
		got, want := read[float32](b, 1, raw.Data), read[float32](b, 0, host.Data)
		b.rowsWithin("k and v, deferred", got, want, half, 1e-3)
	})
}

// BenchmarkCUDABranches measures the feed-forward of Gemma 3 4B, for generated rows and for a prompt, with a down
// projection that adds and with one that a norm follows. The time is that of a layer divided by its ops, two or three.
func BenchmarkCUDABranches(t *testing.B) {
	const hidden, inner, layers = 2560, 10240, 3 // larger than an L2 cache
	for _, rows := range []int{1, 8, 400} {
		for _, normed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-rows-normed-%t", rows, normed), func(t *testing.B) {
				b := newBoth(t)
				x, mid, branch := put(b, b.normal(rows*hidden, 1))[1], b.poisoned(rows * inner)[1], b.poisoned(rows * hidden)[1]
				norm, workspace := put(b, b.powers(hidden))[1], b.workspaceFor(rows, inner)
				var ops []device.Op
				for range layers {
					gate, up, down := b.matrix(kernels.BF16, inner, hidden)[1], b.matrix(kernels.BF16, inner, hidden)[1],
						b.matrix(kernels.BF16, hidden, inner)[1]
					project := kernels.Projection{W: down, In: mid, X: x, T: rows, Workspace: workspace,
						Class: classOf(rows > 8), Store: normed}
					ops = append(ops, kernels.GateUp{X: x, Norm: norm, Gate: gate, Up: up, Out: mid, T: rows, Eps: 1e-6,
						Workspace: workspace, Class: classOf(rows > 8), Activation: kernels.GELUTanh})
					if normed {
						project.X = branch
					}
					if ops = append(ops, project); normed {
						ops = append(ops, kernels.AddNorm{Branch: branch, Norm: norm, X: x, T: rows, Cols: hidden, Eps: 1e-6})
					}
				}
				b.perLaunch(t, float64(3*2*hidden*inner*layers)/float64(len(ops)), ops...)
			})
		}
	}
}
