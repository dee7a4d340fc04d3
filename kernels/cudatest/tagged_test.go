//go:build cuda

package cudatest

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/internal/tune"
)

// taggedShape is a model's shape. outputBias is a bias of the output projection. With experts, of which a row uses some,
// inner is the width of one.
type taggedShape struct {
	hidden, inner, heads, kvHeads, dim, layers, vocab int
	biased, normed, outputBias                        bool
	window                                            int  // positions that every second layer sees; 0: all
	sinks                                             bool // of each query head
	experts, used                                     int
	wrongRows                                         bool // the op before a product over codes does not know that
	taggedFormats
}

// taggedFormats are those of a pass's weights; the zero value is bfloat16. odd is that of v and down in every second
// layer, if it has one of its own.
type taggedFormats struct{ table, qk, v, output, gates, down, head, odd kernels.DType }

// all returns formats of one kind.
func all(t kernels.DType) taggedFormats { return taggedFormats{t, t, t, t, t, t, t, 0} }

// taggedCodes are shapes with weights of codes: each format, with one unit and with several for each block; then columns
// that end within a chunk of 128, and formats as files mix them, beside bfloat16 too.
func taggedCodes() (shapes []taggedShape) {
	small := taggedShape{hidden: 256, inner: 512, heads: 4, kvHeads: 2, dim: 64, layers: 3, vocab: 500, normed: true}
	large := taggedShape{hidden: 2048, inner: 5632, heads: 16, kvHeads: 4, dim: 128, layers: 2, vocab: 4096,
		biased: true}
	for _, t := range []kernels.DType{kernels.Q4_0, kernels.Q8_0, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K, kernels.F8,
		kernels.G4_128} {
		small.taggedFormats, large.taggedFormats = all(t), all(t)
		shapes = append(shapes, small, large)
	}
	odd := taggedShape{hidden: 320, inner: 192, heads: 5, kvHeads: 5, dim: 64, layers: 2, vocab: 512, outputBias: true,
		taggedFormats: all(kernels.Q8_0)}
	plain := taggedShape{hidden: 4096, inner: 11008, heads: 32, kvHeads: 32, dim: 128, layers: 2, vocab: 4096,
		taggedFormats: all(kernels.Q4_K)}
	plain.odd, plain.head = kernels.Q6_K, kernels.Q6_K
	mixed := large
	mixed.taggedFormats = taggedFormats{kernels.BF16, kernels.G4_128, kernels.G4_128, kernels.BF16, kernels.BF16,
		kernels.F8, kernels.BF16, 0}
	other := large
	other.taggedFormats = taggedFormats{kernels.Q6_K, kernels.BF16, kernels.BF16, kernels.Q4_0, kernels.Q8_0,
		kernels.BF16, kernels.Q6_K, 0}
	return append(shapes, odd, plain, mixed, other)
}

// name returns the shape's name as a test.
func (s taggedShape) name() string {
	return fmt.Sprintf("%d %v %d experts of %d", s.hidden, s.taggedFormats, s.experts, s.inner)
}

// taggedShapes have K blocks for some warps, for all, and several for each; one head of q for each of k or seven; one
// split of keys and values or several; and gates with persistent blocks (qwen2.5-0.5b on 132 SMs).
var taggedShapes = []taggedShape{
	{hidden: 128, inner: 192, heads: 4, kvHeads: 2, dim: 64, layers: 3, vocab: 512, normed: true},
	{hidden: 896, inner: 4864, heads: 14, kvHeads: 2, dim: 64, layers: 2, vocab: 4096, biased: true},
	{hidden: 2560, inner: 2432, heads: 32, kvHeads: 8, dim: 128, layers: 2, vocab: 4096, normed: true},
	{hidden: 4096, inner: 2752, heads: 8, kvHeads: 8, dim: 128, layers: 2, vocab: 4096, outputBias: true},
	{hidden: 1024, inner: 24064, heads: 16, kvHeads: 16, dim: 64, layers: 1, vocab: 1024, biased: true, normed: true},
	{hidden: 192, inner: 256, heads: 14, kvHeads: 2, dim: 64, layers: 3, vocab: 512, sinks: true, window: 100},
	{hidden: 320, inner: 192, heads: 10, kvHeads: 1, dim: 64, layers: 2, vocab: 512, sinks: true, biased: true, window: 17,
		outputBias: true, taggedFormats: all(kernels.Q8_0)},
}

const taggedContext = 512

// taggedWeights are the weights of a pass.
type taggedWeights struct {
	taggedShape
	embedding, head kernels.Weight
	norm, rope      device.Buffer
	layers          []taggedLayer
}

type taggedLayer struct {
	q, k, v, output, gate, up, down   kernels.Weight // with experts gate, up and down are stacks
	norm, inner, bias, norms, outBias device.Buffer
	sinks, router                     device.Buffer    // router: of a layer with experts
	biases                            [4]device.Buffer // of the router, gates, ups and downs, if it is biased; or none
}

func (b *both) taggedWeights(s taggedShape) *taggedWeights {
	matrix := func(t kernels.DType, rows, cols int) kernels.Weight {
		if t == 0 {
			t = kernels.BF16
		}
		return b.matrix(t, rows, cols)[1]
	}
	vector := func(n int) device.Buffer { return b.load(1, bytesOf(b.normal(n, 1))) }
	w := &taggedWeights{taggedShape: s, embedding: matrix(s.table, s.vocab, s.hidden),
		head: matrix(s.head, s.vocab, s.hidden), norm: vector(s.hidden), rope: b.load(1, bytesOf(b.randomRoPE(taggedContext, s.dim)))}
	stack := max(s.experts, 1)
	for i := range s.layers {
		v, down := s.v, s.down
		if i%2 == 1 && s.odd != 0 {
			v, down = s.odd, s.odd
		}
		l := taggedLayer{q: matrix(s.qk, s.heads*s.dim, s.hidden), k: matrix(s.qk, s.kvHeads*s.dim, s.hidden),
			v: matrix(v, s.kvHeads*s.dim, s.hidden), output: matrix(s.output, s.hidden, s.heads*s.dim),
			gate: matrix(s.gates, stack*s.inner, s.hidden), up: matrix(s.gates, stack*s.inner, s.hidden),
			down: matrix(down, stack*s.hidden, s.inner),
			norm: vector(s.hidden), inner: vector(s.hidden)}
		if s.experts > 0 {
			l.router = b.load(1, bytesOf(b.normal(s.experts*s.hidden, 1/math.Sqrt(float64(s.hidden)))))
			for i, n := range []int{1, s.inner, s.inner, s.hidden} {
				if s.biased {
					l.biases[i] = vector(s.experts * n)
				}
			}
		}
		if s.biased {
			l.bias = vector((s.heads + 2*s.kvHeads) * s.dim)
		}
		if s.normed {
			l.norms = vector(2 * s.dim)
		}
		if s.outputBias {
			l.outBias = vector(s.hidden)
		}
		if s.sinks {
			l.sinks = vector(s.heads)
		}
		w.layers = append(w.layers, l)
	}
	return w
}

// taggedPass is a pass of one row over some weights, in memory of its own.
type taggedPass struct {
	*stager
	*taggedWeights
	kv                                                           kernels.KV
	x, q, attended, inner, logits, work, pass, tx, tqkv, ta, tin device.Buffer
	before                                                       kernels.KVBeforeRoPE
	experts                                                      taggedExpertsMemory
}

// newTaggedPass returns one that takes pages in the same order as others. Tagged memory holds NaN, whose numbers no pass
// has, and the number of the pass is about to wrap around.
func newTaggedPass(b *both, w *taggedWeights, pool []uint16) *taggedPass {
	const number = 1<<32 - 5*1024
	inner := w.inner * max(w.used, 1)
	p := &taggedPass{stager: newStager(b, 1, taggedContext/16, taggedContext, kernels.StepLayout{MaxRows: 1, MaxSamples: 1}),
		taggedWeights: w, kv: w.pool(), x: b.poisoned(w.hidden)[1], q: b.poisoned(w.heads * w.dim)[1],
		attended: b.poisoned(w.heads * w.dim)[1], inner: b.poisoned(inner)[1], logits: b.poisoned(w.vocab)[1],
		work: b.attendWorkspace(1, w.heads, w.dim, taggedContext), pass: b.load(1, bytesOf([]uint32{number})),
		tx: b.poisoned(2 * w.hidden)[1], tqkv: b.poisoned(2 * (w.heads + 2*w.kvHeads) * w.dim)[1],
		ta: b.poisoned(w.heads * w.dim)[1], tin: b.poisoned(inner)[1], before: b.beforeRoPE(1, w.kvHeads, w.dim)}
	p.kv.Data = b.load(1, bytesOf(pool))
	if w.taggedShape.experts > 0 {
		p.experts = newTaggedExperts(b, w.taggedShape)
	}
	return p
}

// pool returns a pool without memory.
func (w *taggedWeights) pool() kernels.KV {
	return kernels.KV{DType: kernels.BF16, Pages: taggedContext/16 + 1, PageTokens: 16, Layers: w.taggedShape.layers,
		Heads: w.kvHeads, HeadDim: w.dim}
}

// ops returns the pass.
func (p *taggedPass) ops() []device.Op {
	rows, slots := p.stager.rows[1], p.stager.slots[1]
	tags := func(in, out device.Buffer, taken, given int) kernels.Tags {
		return kernels.Tags{Pass: p.pass, In: in, Out: out, Taken: taken, Given: given}
	}
	ops := []device.Op{p.op(1, 1, 1), kernels.Embed{Table: p.embedding, Rows: rows, X: p.x, T: 1,
		Tags: tags(device.Buffer{}, p.tx, 0, 0)}}
	for i, l := range p.layers {
		qkv := kernels.QKV{X: p.x, Norm: l.norm, Q: l.q, K: l.k, V: l.v, Bias: l.bias, HeadNorms: l.norms, RoPE: p.rope,
			Rows: rows, Slots: slots, KV: p.kv, Out: p.q, BeforeRoPE: p.before, T: 1, Layer: i, Hidden: p.hidden,
			Heads: p.heads, Eps: 1e-5, DeferRoPE: p.biased || p.normed, Tags: tags(p.tx, p.tqkv, 2*i, 2*i+1)}
		attend := kernels.Attend{Q: p.q, Rows: rows, Slots: slots, KV: p.kv, Out: p.attended, Workspace: p.work, T: 1,
			Layer: i, Heads: p.heads, Scale: 0.125, Sinks: l.sinks, Window: p.window * (i % 2), AfterQKV: true,
			Tags: tags(p.tqkv, p.ta, 2*i+1, 2*i+1), TagsPost: qkv.Post()}
		if qkv.DeferRoPE {
			attend.Post = qkv.Post()
		}
		attend.Tags.ForCodes = l.output.DType.Quantised()
		forDown := tags(p.tx, p.tin, 2*i+1, 2*i+2)
		forDown.ForCodes = l.down.DType.Quantised() && !p.wrongRows
		ops = append(ops, qkv, attend,
			kernels.Projection{W: l.output, Bias: l.outBias, In: p.attended, X: p.x, T: 1, Tags: tags(p.ta, p.tx, 2*i+1, 2*i+1)})
		if p.taggedShape.experts > 0 {
			ops = append(ops, p.layerExperts(l, tags(p.tx, p.tx, 2*i+1, 2*i+2)))
			continue
		}
		ops = append(ops,
			kernels.GateUp{X: p.x, Norm: l.inner, Gate: l.gate, Up: l.up, Out: p.inner, T: 1, Eps: 1e-5,
				Tags: forDown},
			kernels.Projection{Name: kernels.DownProjection, W: l.down, In: p.inner, X: p.x, T: 1,
				Tags: tags(p.tin, p.tx, 2*i+2, 2*i+2)})
	}
	return append(ops, kernels.Head{X: p.x, Norm: p.norm, W: p.head, Rows: rows, Logits: p.logits, T: 1, N: 1, Eps: 1e-5,
		Tags: tags(p.tx, device.Buffer{}, 2*len(p.layers), 0)})
}

// begin gives the sequence its pages.
func (p *taggedPass) begin() {
	s := kernels.Step{Inits: []kernels.Init{{}}}
	for i := range int32(taggedContext / 16) {
		s.Pages = append(s.Pages, kernels.PageEntry{Index: i, Page: 1 + (i*5)%(taggedContext/16)})
	}
	p.write(s)
	p.onGPU(p.op(1, 1, 1))
}

// capture returns a graph of the pass, with tagged values or without.
func (p *taggedPass) capture(tagged bool) device.Exec {
	defer func(t bool) { tune.Tagged = t }(tune.Tagged)
	tune.Tagged = tagged
	p.begin()
	runtime.LockOSThread() // a capture must end on the thread on which it began
	defer runtime.UnlockOSThread()
	s := p.streams[1]
	p.must(s.BeginCapture())
	for _, op := range p.ops() {
		p.must(s.Launch(op))
	}
	g, err := s.EndCapture()
	p.must(err)
	x, err := g.Instantiate()
	p.must(err)
	p.must(g.Destroy())
	return x
}

// next stages a row with another token, at a position that returns every 300 steps, to be sampled or not.
func (p *taggedPass) next(step int, sampled bool) {
	s := kernels.Step{Rows: []kernels.Row{{Position: int32(step*7%300) + 1, Token: int32(step * 131 % p.vocab)}}}
	if sampled {
		s.Samples = []int32{0}
	}
	p.write(s)
}

// anyNaN reports whether a word holds NaN, as poisoned memory does.
func anyNaN(words []uint32) bool {
	return slices.ContainsFunc(words, func(w uint32) bool { return w&0x7fffffff > 0x7f800000 })
}

// logitsOf returns those of the last step.
func (p *taggedPass) logitsOf() []uint32 { return read[uint32](p.both, 1, p.logits) }

// taggedDiffer replays a pass without tagged values, and the same with them, now and then eagerly. It returns in how many
// steps logits differ or are none, and whether the pools do in the end. Every fourth step is not sampled, so that a kernel
// that kept the list of samples of the step before would be seen.
func taggedDiffer(b *both, s taggedShape, steps int) (logits int, pools bool) {
	w := b.taggedWeights(s)
	kv := w.pool()
	pool := bitsOf(b.normal(int(kv.PageBytes()/2)*kv.Pages, 1))
	plain, tagged := newTaggedPass(b, w, pool), newTaggedPass(b, w, pool)
	graphs := [2]device.Exec{plain.capture(false), tagged.capture(true)}
	for step := range steps {
		sampled := step%4 != 2
		for i, p := range []*taggedPass{plain, tagged} {
			p.next(step, sampled)
			if i == 1 && step%5 == 3 {
				p.onGPU(p.ops()...)
				continue
			}
			b.must(b.streams[1].Replay(graphs[i]))
		}
		b.must(b.streams[1].Synchronize())
		if want := plain.logitsOf(); sampled && (anyNaN(want) || !slices.Equal(tagged.logitsOf(), want)) {
			logits++
		}
	}
	for _, g := range graphs {
		b.must(g.Destroy())
	}
	return logits, !slices.Equal(read[uint16](b, 1, tagged.kv.Data), read[uint16](b, 1, plain.kv.Data))
}

// taggedEqual fails if tagged values change a bit in so many steps. There must be kernels for all weights.
func taggedEqual(t *testing.T, b *both, steps int, shapes []taggedShape) {
	for _, s := range shapes {
		t.Run(s.name(), func(t *testing.T) {
			b := bothWith(t, b.g)
			if logits, pools := taggedDiffer(b, s, steps); logits > 0 || pools {
				t.Errorf("%+v: logits of %d of %d steps differ, keys and values: %t", s, logits, steps, pools)
			}
		})
	}
}

// A pass of one row whose values are tagged has the bits of one whose kernels wait for each other, for shapes of real
// models, replayed and eager, over poisoned memory and while the number of the pass wraps around.
func TestCUDATagged(t *testing.T) { taggedEqual(t, newBoth(t), 24, taggedShapes) }

// The same over quantised weights.
func TestCUDATaggedCodes(t *testing.T) { taggedEqual(t, newBoth(t), 24, taggedCodes()) }

// The same in thousands of steps.
func TestCUDATaggedReplays(t *testing.T) {
	taggedEqual(t, newBoth(t), 1500, slices.Concat(taggedShapes, taggedCodes(), taggedMixtures()))
}

// The same with kernels that are delayed at random.
func TestCUDATaggedLate(t *testing.T) {
	taggedEqual(t, bothOf(t, "late"), 100, slices.Concat(taggedShapes, taggedCodes(), taggedMixtures()))
}

// Kernels that take values without looking at their numbers give other bits: the tests above would notice.
func TestCUDATaggedNoticesStaleValues(t *testing.T) {
	b := bothOf(t, "untagged")
	for _, s := range slices.Concat(taggedCodes(), taggedMixtures(), taggedShapes[1:2]) {
		if logits, _ := taggedDiffer(bothWith(t, b.g), s, 50); logits == 0 {
			t.Errorf("%s: kernels that take stale values give the same bits: the tests of tagged values see nothing",
				s.name())
		}
	}
}

// The rows that gates leave for codes are multiplied before they are rounded. Without that, bits differ.
func TestCUDATaggedNoticesRowsForOthers(t *testing.T) {
	s := taggedCodes()[4]
	s.wrongRows = true
	if logits, _ := taggedDiffer(newBoth(t), s, 5); logits != 4 {
		t.Errorf("rows that are rounded for bfloat16 give the bits of those for codes in %d of 4 sampled steps", 4-logits)
	}
}

// Without the kernels of tagged values, as on other GPUs, ops leave their tags aside: no number of a pass changes.
func TestCUDATagsLeftAside(t *testing.T) {
	b := newBoth(t)
	w := b.taggedWeights(taggedShapes[0])
	kv := w.pool()
	p := newTaggedPass(b, w, bitsOf(b.normal(int(kv.PageBytes()/2)*kv.Pages, 1)))
	g := p.capture(false)
	p.next(3, true)
	b.must(b.streams[1].Replay(g))
	b.must(b.streams[1].Synchronize())
	if got := read[uint32](b, 1, p.pass)[0]; got != 1<<32-5*1024 {
		t.Errorf("the number of the pass is %#x although no value is tagged", got)
	}
	b.must(g.Destroy())
}
