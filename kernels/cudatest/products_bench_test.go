//go:build cuda

package cudatest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// shape is the dimensions of a model's products.
type shape struct {
	name                                              string
	hidden, inner, vocab, layers, heads, kvHeads, dim int
}

var shapes = []shape{
	{"7B", 4096, 11008, 32000, 32, 32, 32, 128},
	{"1B", 2048, 8192, 128256, 16, 32, 8, 64},
}

// layer holds the weights of a layer.
type layer struct{ q, k, v, output, gate, up, down kernels.Weight }

// products is a model of a shape on the GPU, with random weights.
type products struct {
	*both
	shape
	layers       []layer
	head         kernels.Weight
	norm         device.Buffer
	a            kernels.QKV // common to all layers
	mid          device.Buffer
	logits       device.Buffer
	sample       device.Buffer
	oneSample    device.Buffer // a sample index: row 0, then padding
	gathered     device.Buffer // the residual of the gathered rows
	index        device.Buffer
	rounded      device.Buffer // shared by all layers, as in an engine
	roundedInner device.Buffer
	partials     device.Buffer // split-K partials of products
	work         device.Buffer // the workspace of attention
	bytes        int64
}

const benchRows, benchSamples = 400, 256

func newProducts(b *both, s shape) *products { return newProductsOf(b, s, kernels.BF16) }

// newProductsOf is newProducts with weights of a format.
func newProductsOf(b *both, s shape, format kernels.DType) *products {
	p := &products{both: b, shape: s}
	most := bytes.Repeat(b.elements(format, 1<<22, 0.02), s.vocab*s.hidden>>22+1)
	load := func(rows, cols int) kernels.Weight {
		w, err := kernels.LoadWeight(b.g, format, rows, cols, most[:format.Bytes(int64(rows*cols))])
		b.must(err)
		b.t.Cleanup(func() { b.must(b.g.Free(w.Data)) })
		p.bytes += w.Data.Bytes()
		return w
	}
	start := time.Now()
	for range s.layers {
		q, kv := s.heads*s.dim, s.kvHeads*s.dim
		p.layers = append(p.layers, layer{load(q, s.hidden), load(kv, s.hidden), load(kv, s.hidden), load(s.hidden, q),
			load(s.inner, s.hidden), load(s.inner, s.hidden), load(s.hidden, s.inner)})
	}
	p.head = load(s.vocab, s.hidden)
	b.t.Logf("%s: loaded and packed %.2f GB in %.2f s", s.name, float64(p.bytes)/1e9, time.Since(start).Seconds())
	p.norm = put(b, b.normal(s.hidden, 1))[1]
	p.a = p.attention()
	p.mid = put(b, b.normal(benchRows*s.inner, 1))[1]
	p.rounded, p.roundedInner = p.randomActivations(kernels.RoundedBytes(benchRows, s.inner)),
		p.randomActivations(kernels.RoundedBytes(benchRows, s.inner))
	p.partials = b.partialsFor(benchRows)
	p.work = b.attendWorkspace(benchRows, s.heads, s.dim, benchRows)
	p.sample, p.logits = put(b, counted(benchRows))[1], b.load(1, make([]byte, 4*benchSamples*s.vocab))
	p.oneSample = put(b, append([]int32{0}, slices.Repeat([]int32{-1}, benchSamples-1)...))[1]
	p.gathered, p.index = b.load(1, make([]byte, 4*benchSamples*s.hidden)), b.load(1, make([]byte, 4*benchSamples))
	return p
}

// randomActivations returns n bytes of random rounded activations. With NaN the tensor cores
// would use less power, and the GPU would clock higher.
func (p *products) randomActivations(n int64) device.Buffer {
	some := p.elements(kernels.BF16, 1<<20, 1)
	return p.load(1, bytes.Repeat(some, int(n)/len(some)+1)[:n])
}

// attention returns a QKV over a prompt of benchRows tokens, without weights.
func (p *products) attention() kernels.QKV {
	const pageTokens = 16
	pages := benchRows / pageTokens
	kv := kernels.KV{DType: kernels.BF16, Pages: pages, PageTokens: pageTokens, Layers: 1, Heads: p.kvHeads,
		HeadDim: p.dim}
	kv.Data = p.load(1, make([]byte, kv.PageBytes()*int64(pages)))
	return kernels.QKV{X: put(p.both, p.normal(benchRows*p.hidden, 1))[1], Norm: p.norm,
		RoPE: put(p.both, p.normal(benchRows*p.dim, 1))[1],
		Rows: kernels.Rows{Slot: put(p.both, make([]int32, benchRows))[1],
			Position: put(p.both, counted(benchRows))[1]},
		Slots: kernels.Slots{Count: 2, Pages: pages, Context: benchRows,
			BlockTable: put(p.both, append(counted(pages), make([]int32, pages)...))[1]},
		KV: kv, Out: p.poisoned(benchRows * p.heads * p.dim)[1], Hidden: p.hidden, Heads: p.heads, Eps: 1e-5}
}

// ops returns one kind of product of all layers, or all kinds, or a prefill pass with attention,
// over T rows; and the number of weight elements that they read, and their bytes.
func (p *products) ops(kind string, T int, prefill bool) (ops []device.Op, elements, bytes int64) {
	add := func(of string, op device.Op, weights ...kernels.Weight) {
		if kind != of && kind != "pass" && (kind != "all" || of == "attend") {
			return
		}
		ops = append(ops, op)
		for _, w := range weights {
			elements, bytes = elements+int64(w.Rows)*int64(w.Cols), bytes+w.Data.Bytes()
		}
	}
	for i, l := range p.layers {
		a := p.a
		a.T, a.Class, a.Handover.InputIsRounded, a.Q, a.K, a.V, a.Workspace.Rounded, a.Workspace.Partials = T,
			classOf(prefill), true, l.q, l.k, l.v, p.rounded, p.partials
		a.Handover.Next = [3]device.Buffer{l.output.Data}
		add("qkv", a, l.q, l.k, l.v)
		attend := kernels.Attend{Q: a.Out, Rows: a.Rows, Slots: a.Slots, KV: a.KV, Out: a.Out, Workspace: p.work,
			T: T, Heads: p.heads, Scale: 0.1, Class: classOf(prefill), AfterQKV: kind == "pass",
			Handover: kernels.Handover{Rounded: p.roundedInner, DType: kernels.BF16}}
		last := kind == "pass" && prefill && i == len(p.layers)-1
		if last {
			attend.Handover.Rounded = device.Buffer{}
		}
		add("attend", attend)
		if last { // only the one sampled row continues
			const n = 1
			add("gather", kernels.GatherRows{X: a.X, Rows: kernels.Rows{Sample: p.oneSample}, Out: p.gathered,
				Index: p.index, Cols: l.output.Rows, T: T, N: n})
			add("output", kernels.Projection{W: l.output, In: a.Out, X: p.gathered, RowIndex: p.oneSample, T: n},
				l.output)
			add("gateup", kernels.GateUp{X: p.gathered, Norm: p.norm, Gate: l.gate, Up: l.up, Out: p.mid,
				RowIndex: p.index, T: n, Eps: 1e-5}, l.gate, l.up)
			add("down", kernels.Projection{W: l.down, In: p.mid, X: p.gathered, RowIndex: p.index, T: n,
				Name: kernels.DownProjection}, l.down)
			add("head", kernels.Head{X: p.gathered, Norm: p.norm, W: p.head, Rows: kernels.Rows{Sample: p.index},
				Logits: p.logits, T: n, N: n, Eps: 1e-5}, p.head)
			return ops, elements, bytes
		}
		add("output", kernels.Projection{W: l.output, In: a.Out, X: a.X,
			Workspace: kernels.Workspace{Rounded: p.roundedInner, Partials: p.partials}, T: T,
			Class: classOf(prefill), Handover: p.outputHandover(classOf(prefill), l)}, l.output)
		add("gateup", kernels.GateUp{X: a.X, Norm: p.norm, Gate: l.gate, Up: l.up, Out: p.mid,
			Workspace: kernels.Workspace{Rounded: p.rounded, Partials: p.partials}, T: T, Class: classOf(prefill),
			Handover: kernels.Handover{InputIsRounded: true, Rounded: p.roundedInner,
				Next: [3]device.Buffer{l.down.Data}}, Eps: 1e-5}, l.gate, l.up)
		add("down", kernels.Projection{W: l.down, In: p.mid, X: a.X,
			Workspace: kernels.Workspace{Rounded: p.roundedInner, Partials: p.partials}, T: T,
			Class: classOf(prefill), Handover: kernels.Handover{InputIsRounded: true, Rounded: p.rounded,
				Norm: p.norm, Next: p.following(i)}, Name: kernels.DownProjection}, l.down)
	}
	n := min(T, benchSamples)
	if prefill {
		n = 1 // only a prompt's last row is sampled
	}
	add("head", kernels.Head{X: p.a.X, Norm: p.norm, W: p.head, Rows: kernels.Rows{Sample: p.sample},
		Logits: p.logits, Workspace: kernels.Workspace{Rounded: p.rounded, Partials: p.partials}, T: T, N: n, Eps: 1e-5}, p.head)
	return ops, elements, bytes
}

// following returns the weights after layer i.
func (p *products) following(i int) [3]device.Buffer {
	if i+1 == len(p.layers) {
		return [3]device.Buffer{p.head.Data}
	}
	next := p.layers[i+1]
	return [3]device.Buffer{next.q.Data, next.k.Data, next.v.Data}
}

// BenchmarkProductsAhead replays all products of many rows, with more and less of the next weights brought to the cache
// at the end of each.
func BenchmarkProductsAhead(bench *testing.B) {
	defer func(before int) { tune.AheadBytes = before }(tune.AheadBytes)
	for _, s := range shapes {
		p := newProducts(newBoth(bench), s)
		for _, T := range []int{16, 64, 128} {
			for _, tune.AheadBytes = range []int{0, 32 << 10, 64 << 10, 96 << 10} {
				fmt.Printf("%3d KiB ahead: ", tune.AheadBytes>>10)
				p.measure("all", T, false)
			}
		}
	}
}

// outputHandover returns that of the output projection, as a model has it.
func (p *products) outputHandover(class kernels.Class, l layer) (h kernels.Handover) {
	if class.HandoverType(l.output) != 0 {
		h = kernels.Handover{InputIsRounded: true, Rounded: p.rounded, Norm: p.norm,
			Next: [3]device.Buffer{l.gate.Data, l.up.Data}}
	}
	return h
}

// BenchmarkProducts replays a graph of one kind of product of all layers. It prints the time of a
// product, the rate of reading weights, and the rate of arithmetic.
func BenchmarkProducts(bench *testing.B) {
	for _, s := range shapes {
		bench.Run(s.name, func(bench *testing.B) {
			p := newProducts(newBoth(bench), s)
			for _, prefill := range []bool{false, true} {
				for _, T := range []int{1, 8, 10, 12, 16, 32, 50, 64, 100, 128, 200, 256, 400} {
					bench.Run(fmt.Sprintf("prefill=%v/T=%d", prefill, T), func(*testing.B) {
						for _, kind := range []string{"qkv", "output", "gateup", "down", "head", "all"} {
							p.measure(kind, T, prefill)
						}
						if prefill {
							p.measure("pass", T, prefill)
						}
					})
				}
			}
		})
	}
}

// measure prints the median of several replays.
func (p *products) measure(kind string, T int, prefill bool) {
	ops, elements, bytes := p.ops(kind, T, prefill)
	p.replay(ops...)
	const runs = 5
	each := p.replayTimes(runs, ops...)
	if v, found := notNumber(read[float32](p.both, 1, p.a.X)); found {
		p.t.Fatalf("%s over %d rows: X has %v: with that, kernels that want more power than the GPU has are faster",
			kind, T, v)
	}
	us := each[runs/2].Seconds() * 1e6
	class := "decode"
	if prefill {
		class = "prefill"
	}
	fmt.Printf("%s %s T=%-3d %-7s %9.1f us, %8.2f us each, %6.0f GB/s, %6.1f TFLOP/s\n", p.name, class, T, kind, us,
		us/float64(len(ops)),
		float64(bytes)/us/1e3, float64(2*elements*int64(T))/us/1e6)
}
