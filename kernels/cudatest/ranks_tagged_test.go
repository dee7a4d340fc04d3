//go:build cuda

package cudatest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// ranksShapes have a split of keys and values or several, and units for some blocks or several for each; then experts
// of which a GPU's part has a K block for some warps, and those of Qwen3-30B-A3B.
var ranksShapes = []taggedShape{
	{hidden: 256, inner: 384, heads: 8, kvHeads: 8, dim: 64, layers: 3, vocab: 1024},
	{hidden: 4096, inner: 11008, heads: 32, kvHeads: 32, dim: 128, layers: 2, vocab: 4096},
	{hidden: 1024, inner: 2816, heads: 16, kvHeads: 8, dim: 128, layers: 2, vocab: 2048, outputBias: true},
	{hidden: 256, inner: 128, heads: 8, kvHeads: 8, dim: 64, layers: 3, vocab: 1024, experts: 16, used: 4},
	{hidden: 2048, inner: 768, heads: 32, kvHeads: 8, dim: 128, layers: 2, vocab: 4096, experts: 32, used: 8},
}

// ranksPass is a pass of one row over all GPUs, of which each has a part of every weight.
type ranksPass struct {
	*ranksRig
	taggedShape
	layers          []taggedLayer
	embedding, head kernels.Weight
	norm, rope      device.Buffer
	rows            kernels.Rows
	slots           kernels.Slots
	words           []int32 // of rows: token and position
}

// ranksMemory is what one form of the pass writes.
type ranksMemory struct {
	kv                                                   kernels.KV
	x, q, ownAttended, attended, ownInner, inner, logits device.Buffer
	branch                                               device.Buffer
	gathered                                             [2]device.Buffer
	work, pass, tx, tqkv, ta, tin                        device.Buffer
	experts                                              taggedExpertsMemory
}

// same copies the same bytes to all GPUs.
func (g *ranksRig) same(data []byte) device.Buffer {
	g.t.Helper()
	b, err := g.dev.Load(data)
	g.must(err)
	g.t.Cleanup(func() { g.must(g.dev.Free(b)) })
	return b
}

// small returns n words of two bfloat16 each, between 2^-7 and 2^-5.
func small(n int) []byte {
	data := make([]byte, 2*n)
	for i := 0; i < len(data); i += 2 {
		data[i], data[i+1] = byte(rand.Uint32()), 0x3c|byte(rand.Uint32())&0x81
	}
	return data
}

// nan returns n words that no pass gives.
func (g *ranksRig) nan(n int) device.Buffer {
	return g.load(func(int) []float32 { return filled(n, float32(math.NaN())) })
}

func (g *ranksRig) newPass(s taggedShape) *ranksPass {
	p := &ranksPass{ranksRig: g, taggedShape: s, norm: g.shared(s.hidden, 1)[0],
		embedding: kernels.Weight{Data: g.same(small(s.vocab * s.hidden)), DType: kernels.BF16, Layout: kernels.Fragments,
			Rows: s.vocab, Cols: s.hidden},
		head: g.randomWeight(s.vocab/g.n, s.hidden), rope: g.shared(taggedContext*s.dim, 1)[0]}
	q, kv, stack := s.heads*s.dim, s.kvHeads*s.dim, max(1, s.experts)
	for range s.layers {
		l := taggedLayer{q: g.randomWeight(q/g.n, s.hidden), k: g.randomWeight(kv/g.n, s.hidden),
			v: g.randomWeight(kv/g.n, s.hidden), output: g.randomWeight(s.hidden/g.n, q),
			gate: g.randomWeight(stack*s.inner/g.n, s.hidden), up: g.randomWeight(stack*s.inner/g.n, s.hidden),
			down: g.randomWeight(stack*s.hidden/g.n, s.inner), norm: g.shared(s.hidden, 1)[0], inner: g.shared(s.hidden, 1)[0]}
		if s.outputBias {
			l.outBias = g.shared(s.hidden, 1)[0]
		}
		if s.experts > 0 {
			l.router = g.shared(s.experts*s.hidden, 1)[0]
		}
		p.layers = append(p.layers, l)
	}
	p.stage()
	return p
}

// stage gives the row its words, which the host writes, and its pages.
func (p *ranksPass) stage() {
	b, mapped, err := p.dev.Pinned(8)
	p.must(err)
	p.t.Cleanup(func() { p.must(p.dev.Free(b)) })
	p.words = unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(mapped.Bytes()))), 2)
	zero := p.same(make([]byte, 8))
	p.rows = kernels.Rows{Token: b.Slice(0, 4), Position: b.Slice(4, 4), Slot: zero.Slice(0, 4), Sample: zero.Slice(4, 4)}
	var table []byte
	for i := range uint32(taggedContext / 16) {
		table = binary.LittleEndian.AppendUint32(table, i*5%(taggedContext/16))
	}
	p.slots = kernels.Slots{Count: 1, Pages: taggedContext / 16, Context: taggedContext, BlockTable: p.same(table)}
}

// memory returns memory of NaN with these keys and values.
func (p *ranksPass) memory(pool []byte) *ranksMemory {
	s, n := p.taggedShape, p.n
	q, kv, used := s.heads*s.dim, s.kvHeads*s.dim, max(1, s.used)
	m := &ranksMemory{kv: p.pool(), x: p.nan(s.hidden), q: p.nan(q / n), ownAttended: p.nan(q / n), attended: p.nan(q),
		ownInner: p.nan(used * s.inner / n), inner: p.nan(used * s.inner), logits: p.nan(s.vocab / n),
		branch: p.nan(s.hidden / n), gathered: [2]device.Buffer{p.nan(s.hidden), p.nan(s.hidden)},
		work: p.same(make([]byte, kernels.AttendWorkspaceBytes(1, s.heads/n, s.dim, taggedContext))),
		pass: p.load(func(int) []float32 { return []float32{math.Float32frombits(1<<32 - 5*1024)} }),
		tx:   p.nan(2 * s.hidden), tqkv: p.nan(2 * (q + 2*kv) / n), ta: p.nan(q), tin: p.nan(used * s.inner)}
	m.kv.Data = p.same(pool)
	if s.experts > 0 {
		m.experts = taggedExpertsMemory{
			chosen: kernels.Chosen{IDs: p.nan(used), Weights: p.nan(used),
				Segments: p.nan(int(kernels.SegmentsBytes(1, used, s.experts) / 4)), Experts: s.experts, Used: used},
			route:   kernels.RouteWorkspace{Logits: p.nan(s.experts), Arrivals: p.same(make([]byte, 4))},
			results: p.nan(used * s.hidden),
			between: kernels.ExpertTags{Logits: p.nan(2 * s.experts), Choice: p.nan(4 * used), Inner: m.tin}}
	}
	return m
}

// pool returns a GPU's pool without memory.
func (p *ranksPass) pool() kernels.KV {
	return kernels.KV{DType: kernels.BF16, Pages: taggedContext / 16, PageTokens: 16, Layers: len(p.layers),
		Heads: p.kvHeads / p.n, HeadDim: p.dim}
}

// exchange returns the exchange of a row of which each GPU has an equal part.
func (p *ranksPass) exchange(part, all device.Buffer, rows, width int) kernels.Exchange {
	return kernels.Exchange{Part: part, All: all, Signals: p.set.Signals, T: rows, Width: width, PartCols: width / p.n,
		Ranks: p.n}
}

// ops returns the pass in this memory.
func (p *ranksPass) ops(m *ranksMemory) []device.Op {
	tags := func(in device.Buffer, taken int, out device.Buffer, given int) kernels.Tags {
		return kernels.Tags{Pass: m.pass, In: in, Out: out, Taken: taken, Given: given, Ranks: p.n}
	}
	ops := []device.Op{kernels.Embed{Table: p.embedding, Rows: p.rows, X: m.x, T: 1,
		Tags: tags(device.Buffer{}, 0, m.tx, 0)}}
	for i, l := range p.layers {
		qkv := kernels.QKV{X: m.x, Norm: l.norm, Q: l.q, K: l.k, V: l.v, RoPE: p.rope, Rows: p.rows, Slots: p.slots,
			KV: m.kv, Out: m.q, T: 1, Layer: i, Hidden: p.hidden, Heads: p.heads / p.n, Eps: 1e-5,
			Tags: tags(m.tx, 2*i, m.tqkv, 2*i+1)}
		attend := kernels.Attend{Q: m.q, Rows: p.rows, Slots: p.slots, KV: m.kv, Out: m.ownAttended, Workspace: m.work,
			T: 1, Layer: i, Heads: p.heads / p.n, Scale: 0.125, AfterQKV: true, Tags: tags(m.tqkv, 2*i+1, m.ta, 2*i+1),
			TagsPost: qkv.Post(), Spread: p.exchange(m.ownAttended, m.attended, 1, p.heads*p.dim)}
		output := p.projection(m, l.output, m.attended, 0, tags(m.ta, 2*i+1, m.tx, 2*i+1))
		output.Spread.Bias = l.outBias
		ops = append(ops, qkv, attend, output)
		if p.experts > 0 {
			ops = append(ops, p.layerExperts(m, l, tags(m.tx, 2*i+1, m.tx, 2*i+2)))
			continue
		}
		ops = append(ops, kernels.GateUp{X: m.x, Norm: l.inner, Gate: l.gate, Up: l.up, Out: m.ownInner, T: 1, Eps: 1e-5,
			Tags: tags(m.tx, 2*i+1, m.tin, 2*i+2), Spread: p.exchange(m.ownInner, m.inner, 1, p.inner)},
			p.projection(m, l.down, m.inner, 1, tags(m.tin, 2*i+2, m.tx, 2*i+2)))
	}
	return append(ops, kernels.Head{X: m.x, Norm: p.norm, W: p.head, Rows: p.rows, Logits: m.logits, T: 1, N: 1, Eps: 1e-5,
		Tags: tags(m.tx, 2*len(p.layers), device.Buffer{}, 0)}, p.exchange(m.logits, p.nan(p.vocab), 1, p.vocab))
}

func (p *ranksPass) projection(m *ranksMemory, w kernels.Weight, in device.Buffer, which int,
	t kernels.Tags) kernels.Projection {
	o := kernels.Projection{Name: kernels.ProjectionName(which), W: w, In: in, X: m.branch, T: 1, Store: true, Tags: t,
		Spread: p.exchange(m.branch, m.gathered[which], 1, p.hidden)}
	o.Spread.X = m.x
	return o
}

func (p *ranksPass) layerExperts(m *ranksMemory, l taggedLayer, t kernels.Tags) kernels.Experts {
	c := m.experts.chosen
	o := kernels.Experts{
		Route: kernels.Route{X: m.x, Norm: l.inner, Router: l.router, Chosen: c, T: 1, Hidden: p.hidden, Eps: 1e-5,
			Normalise: true, Workspace: m.experts.route},
		GateUp: kernels.ExpertGateUp{X: m.x, Norm: l.inner, Gate: l.gate, Up: l.up, Chosen: c, Out: m.ownInner, Eps: 1e-5,
			T: 1, Spread: p.exchange(m.ownInner, m.inner, c.Used, p.inner)},
		Down: kernels.ExpertDown{Down: l.down, In: m.inner, X: m.branch, Chosen: c, T: 1, Store: true,
			Workspace: kernels.ExpertWorkspace{Results: m.experts.results},
			Spread:    p.exchange(m.branch, m.gathered[1], 1, p.hidden)},
		Tags: t, Between: m.experts.between,
	}
	o.Down.Spread.X = m.x
	return o
}

// capture returns a graph of ops, with tagged values or without.
func (p *ranksPass) capture(tagged bool, ops []device.Op) device.Exec {
	defer func(t bool) { tune.Tagged = t }(tune.Tagged)
	tune.Tagged = tagged
	runtime.LockOSThread() // a capture must end on the thread on which it began
	defer runtime.UnlockOSThread()
	return p.captured(len(ops), ops)
}

// differ returns in how many of so many steps the logits of some GPU differ between passes with tagged values and with
// exchanges, or are none. Now and then the tagged pass is launched eagerly, and several follow each other at once.
func (p *ranksPass) differ(steps int) (logits int) {
	kv := p.pool()
	pool := small(int(kv.PageBytes()/2) * kv.Pages)
	plain, tagged := p.memory(pool), p.memory(pool)
	ops := p.ops(tagged)
	graphs := [2]device.Exec{p.capture(false, p.ops(plain)), p.capture(true, ops)}
	for step := range steps {
		p.words[0], p.words[1] = int32(step*131%p.vocab), int32(step*7%300)+1
		p.must(p.s.Replay(graphs[0]))
		for range 1 + step%3 {
			if step%5 != 3 {
				p.must(p.s.Replay(graphs[1]))
				continue
			}
			for _, op := range ops {
				p.must(p.s.Launch(op))
			}
		}
		p.must(p.s.Synchronize())
		if p.differIn(plain, tagged) {
			logits++
		}
	}
	return logits
}

func (p *ranksPass) differIn(plain, tagged *ranksMemory) bool {
	want, got := make([]uint32, p.vocab/p.n), make([]uint32, p.vocab/p.n)
	for rank := range p.n {
		p.must(p.set.Read(rank, bytesOf(want), plain.logits))
		p.must(p.set.Read(rank, bytesOf(got), tagged.logits))
		if anyNaN(want) || !slices.Equal(want, got) {
			return true
		}
	}
	return false
}

// A pass of one row on several GPUs whose values are tagged has the bits of one with exchanges, replayed and eager,
// over poisoned memory and while the number of the pass wraps around.
func TestCUDARanksTagged(t *testing.T) { ranksEqual(t, newRanksRig(t, cuda.PeerLink), 40) }

// The same with kernels that are delayed at random.
func TestCUDARanksTaggedLate(t *testing.T) {
	ranksEqual(t, newRanksRigOf(t, cuda.PeerLink, kernelsOf(t, "late")), 100)
}

func ranksEqual(t *testing.T, g *ranksRig, steps int) {
	for _, s := range ranksShapes {
		t.Run(s.name(), func(t *testing.T) {
			r := *g
			r.t = t
			if n := r.newPass(s).differ(steps); n > 0 {
				t.Errorf("logits of %d of %d steps differ", n, steps)
			}
		})
	}
}

// Kernels that take values without looking at their numbers give other bits: the tests above would notice.
func TestCUDARanksTaggedNoticesStaleValues(t *testing.T) {
	g := newRanksRigOf(t, cuda.PeerLink, kernelsOf(t, "untagged"))
	for _, s := range ranksShapes {
		if g.newPass(s).differ(20) == 0 {
			t.Errorf("%s: kernels that take stale values give the same bits", s.name())
		}
	}
}
