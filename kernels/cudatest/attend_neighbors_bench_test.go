//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// BenchmarkCUDAAttendAndNeighbors measures QKV, attention and output projection of the decode
// class, one after another as in a layer, over layers whose weights together are larger than the
// L2 cache. Attention starts before its QKV has ended, or waits for it; with head norms it does
// QK post-processing, or a kernel of its own does.
func BenchmarkCUDAAttendAndNeighbors(t *testing.B) {
	plain := []followUp{{name: "early-false"}, {name: "early-true", early: true}}
	for _, s := range []struct {
		shape
		ways []followUp
	}{
		{shape{name: "7B", hidden: 4096, layers: 2, heads: 32, kvHeads: 32, dim: 128}, plain},
		{shape{name: "1B", hidden: 2048, layers: 8, heads: 32, kvHeads: 8, dim: 64}, plain},
		{shape{name: "qwen3-4b", hidden: 2560, layers: 4, heads: 32, kvHeads: 8, dim: 128},
			[]followUp{{name: "apart", early: true, norms: true},
				{name: "in-attention", early: true, norms: true, deferred: true}}},
	} {
		a := newAttendNeighbors(newBoth(t), s.shape)
		for _, c := range []struct{ rows, n int }{{1, 20}, {1, 250}, {1, 4000}, {8, 256}} {
			for _, how := range s.ways {
				t.Run(fmt.Sprintf("%s/%d-rows-%d-positions/%s", s.name, c.rows, c.n, how.name), func(t *testing.B) {
					b := newBoth(t)
					ops := a.ops(b, c.rows, c.n, how)
					b.perLaunch(t, 0, ops...)
					t.ReportMetric(t.Elapsed().Seconds()/float64(t.N*64*s.layers)*1e6, "µs/layer")
				})
			}
		}
	}
}

// BenchmarkCUDAVerifyAttendAndNeighbors measures the same of a verify pass, beside plain decode of one sequence and of
// as many sequences as there are rows.
func BenchmarkCUDAVerifyAttendAndNeighbors(t *testing.B) {
	for _, s := range []shape{{name: "7B", hidden: 4096, layers: 2, heads: 32, kvHeads: 32, dim: 128},
		{name: "8B", hidden: 4096, layers: 3, heads: 32, kvHeads: 8, dim: 128},
		{name: "1B", hidden: 2048, layers: 8, heads: 32, kvHeads: 8, dim: 64}} {
		a := newAttendNeighbors(newBoth(t), s)
		for _, n := range []int{250, 4000} {
			for _, c := range []struct {
				rows int
				how  followUp
			}{{1, followUp{name: "plain", early: true}}, {8, followUp{name: "plain", early: true}},
				{2, followUp{name: "verify", early: true, queries: 2}},
				{4, followUp{name: "verify", early: true, queries: 4}},
				{8, followUp{name: "verify", early: true, queries: 8}}, {8, followUp{name: "verify-waits", queries: 8}},
				{64, followUp{name: "verify", early: true, queries: 8}}} {
				t.Run(fmt.Sprintf("%s/%d-rows-%d-positions/%s", s.name, c.rows, n, c.how.name), func(t *testing.B) {
					b := newBoth(t)
					b.perLaunch(t, 0, a.ops(b, c.rows, n, c.how)...)
					t.ReportMetric(t.Elapsed().Seconds()/float64(t.N*64*s.layers)*1e6, "µs/layer")
				})
			}
		}
	}
}

// BenchmarkCUDAManyAttendAndNeighbors measures the same of many rows. Keys and values come from memory; or from the L2 cache,
// because all sequences share their pages. The second time is a bound for GPUs with faster memory.
func BenchmarkCUDAManyAttendAndNeighbors(t *testing.B) {
	a := newAttendNeighbors(newBoth(t), shape{name: "7B", hidden: 4096, layers: 2, heads: 32, kvHeads: 32, dim: 128})
	for _, rows := range []int{16, 32, 64, 128} {
		for _, n := range []int{1, 136, 600} {
			for _, how := range []followUp{{name: "memory", early: true}, {name: "cache", early: true, shared: true}} {
				t.Run(fmt.Sprintf("%d-rows-%d-positions/%s", rows, n, how.name), func(t *testing.B) {
					b := newBoth(t)
					b.perLaunch(t, 0, a.ops(b, rows, n, how)...)
					t.ReportMetric(t.Elapsed().Seconds()/float64(t.N*64*a.shape.layers)*1e6, "µs/layer")
				})
			}
		}
	}
}

// followUp is how attention follows its QKV, whether the model has head norms, and how many rows a sequence has.
type followUp struct {
	name                   string
	early, norms, deferred bool
	queries                int  // Attend.Queries
	shared                 bool // pages
}

// attendNeighbors holds the weights of the ops around attention, on the GPU.
type attendNeighbors struct {
	shape
	layers     []layer
	norm, rope device.Buffer
}

const neighborsContext = 4096

func newAttendNeighbors(b *both, s shape) *attendNeighbors {
	q, kv := s.heads*s.dim, s.kvHeads*s.dim
	values := b.elements(kernels.BF16, s.hidden*q, 0.02)
	load := func(rows, cols int) kernels.Weight {
		w, err := kernels.LoadWeight(b.g, kernels.BF16, rows, cols, values[:2*rows*cols])
		b.must(err)
		b.t.Cleanup(func() { b.must(b.g.Free(w.Data)) })
		return w
	}
	a := &attendNeighbors{shape: s, norm: b.load(1, bytesOf(b.powers(s.hidden))),
		rope: b.load(1, bytesOf(b.normal(neighborsContext*s.dim, 1)))}
	for range s.layers {
		a.layers = append(a.layers, layer{q: load(q, s.hidden), k: load(kv, s.hidden), v: load(kv, s.hidden),
			output: load(s.hidden, q)})
	}
	return a
}

// ops returns the ops of all layers for the last rows of sequences of n positions each.
func (a *attendNeighbors) ops(b *both, rows, n int, how followUp) (ops []device.Op) {
	each, width, table, queries := (n+15)/16, a.heads*a.dim, neighborsContext/16, max(1, how.queries)
	sequences := rows / queries
	slot, position, blocks := make([]int32, rows), make([]int32, rows), make([]int32, (sequences+1)*table)
	for i := range rows {
		slot[i], position[i] = int32(i/queries), int32(n-queries+i%queries)
	}
	for i := range sequences {
		first := i * each
		if how.shared {
			first = 0
		}
		for j := range each {
			blocks[i*table+j] = int32(1 + first + j)
		}
	}
	kv := kernels.KV{DType: kernels.BF16, Pages: 1 + sequences*each, PageTokens: 16, Layers: len(a.layers),
		Heads: a.kvHeads, HeadDim: a.dim}
	kv.Data = b.load(1, make([]byte, int64(kv.Pages)*kv.PageBytes()))
	x := b.load(1, bytesOf(b.normal(rows*a.hidden, 1)))
	q, attended := b.poisoned(rows * width)[1], b.poisoned(rows * width)[1]
	in := kernels.Rows{Slot: b.load(1, bytesOf(slot)), Position: b.load(1, bytesOf(position))}
	slots := kernels.Slots{Count: sequences + 1, Pages: table, Context: neighborsContext,
		BlockTable: b.load(1, bytesOf(blocks))}
	work := b.attendWorkspace(rows, a.heads, a.dim, neighborsContext)
	raw, norms := b.beforeRoPE(rows, a.kvHeads, a.dim), b.load(1, bytesOf(b.powers(2*a.dim)))
	for i, w := range a.layers {
		qkv := kernels.QKV{X: x, Norm: a.norm, Q: w.q, K: w.k, V: w.v, RoPE: a.rope, Rows: in, Slots: slots, KV: kv,
			Out: q, T: rows, Layer: i, Hidden: a.hidden, Heads: a.heads, Eps: 1e-5, BeforeRoPE: raw}
		attend := kernels.Attend{Q: q, Rows: in, Slots: slots, KV: kv, Out: attended, Workspace: work, T: rows,
			Layer: i, Heads: a.heads, Scale: float32(1 / math.Sqrt(float64(a.dim))), AfterQKV: how.early,
			Queries: how.queries}
		if how.norms {
			qkv.HeadNorms = norms
		}
		if how.deferred {
			qkv.DeferRoPE, attend.Post = true, qkv.Post()
		}
		ops = append(ops, qkv, attend, kernels.Projection{W: w.output, In: attended, X: x, T: rows})
	}
	return ops
}
