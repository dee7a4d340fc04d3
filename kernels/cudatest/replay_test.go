//go:build cuda

package cudatest

import (
	"math"
	"reflect"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Replayed steps give the same bits as eager ones: staging, attention and sampling, twenty steps
// with one graph.
func TestCUDAReplayIsEager(t *testing.T) {
	b := newBoth(t)
	query, logits := b.normal(3*loopHeads*loopDim, 1), b.normal(4*loopVocab, 3)
	eager, replayed := newLoop(b, query, logits), newLoop(b, query, logits)
	graph := replayed.capture(replayed.ops()...)
	for step := range 20 {
		eager.write(eager.step(step))
		eager.onGPU(eager.ops()...)
		replayed.write(replayed.step(step))
		b.must(b.streams[1].Replay(graph))
		b.must(b.streams[1].Synchronize())
		for i := range 2 {
			want, got := eager.result(eager.out.Bytes(), i), replayed.result(replayed.out.Bytes(), i)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("step %d, sample %d: %+v eager, %+v replayed", step, i, want, got)
			}
		}
		b.equal("attention", read[uint32](b, 1, replayed.attended), read[uint32](b, 1, eager.attended))
	}
	b.must(graph.Destroy())
}

// loop is the part of a pass that this file tests, over fixed queries and logits.
type loop struct {
	*stager
	kv                                         kernels.KV
	q, logits, edited, results, attended, work device.Buffer
	out                                        *device.Mapped
}

const loopHeads, loopDim, loopContext, loopVocab = 4, 64, 512, 3000

func newLoop(b *both, query, logits []float32) *loop {
	l := &loop{stager: newStager(b, 4, 32, loopContext, kernels.StepLayout{MaxRows: 8, MaxSamples: 4})}
	kv := kernels.KV{DType: kernels.BF16, Pages: 70, PageTokens: 16, Layers: 1, Heads: 2, HeadDim: loopDim}
	pool := make([]float32, int(kv.PageBytes()/2)*kv.Pages)
	for i := range pool {
		pool[i] = toBF16(float32(math.Sin(float64(i))))
	}
	kv.Data = b.load(1, bytesOf(bitsOf(pool)))
	l.kv, l.work = kv, b.attendWorkspace(8, loopHeads, loopDim, loopContext)
	l.q, l.logits, l.attended = b.load(1, bytesOf(query)), b.load(1, bytesOf(logits)), b.poisoned(len(query))[1]
	var err error
	l.results, l.out, err = b.g.Pinned(4 * stagerRing * 4 * kernels.RecordWords)
	b.must(err)
	b.t.Cleanup(func() { b.must(b.g.Free(l.results)) })
	b.shareSlots(1, &l.slots[1], loopVocab)
	l.edited = b.poisoned(3 * loopVocab)[1]
	return l
}

// ops returns a step of two sequences and a padding row, with three samples of which one is
// padding.
func (l *loop) ops() []device.Op {
	return []device.Op{
		l.op(1, 3, 3),
		kernels.Attend{Q: l.q, Rows: l.rows[1], Slots: l.slots[1], KV: l.kv, Out: l.attended, Workspace: l.work, T: 3,
			Heads: loopHeads, Scale: 0.125},
		kernels.Sample{Logits: l.logits, Rows: l.rows[1], Slots: l.slots[1], Records: l.results, Edited: l.edited, T: 3,
			N: 3, Vocab: loopVocab, RingSlots: stagerRing, MaxSamples: 4},
	}
}

// step starts two sequences, one of them near the end of a split, and then continues them.
func (l *loop) step(n int) kernels.Step {
	s := kernels.Step{Samples: []int32{0, 1}, Rows: []kernels.Row{
		{Slot: 0, Position: kernels.FromDevice, Token: kernels.FromDevice},
		{Slot: 2, Position: kernels.FromDevice, Token: kernels.FromDevice}}}
	if n == 0 {
		s.Rows = []kernels.Row{{Slot: 0, Position: 250, Token: 7}, {Slot: 2, Position: 3, Token: 9}}
		for i := range int32(32) {
			s.Pages = append(s.Pages, kernels.PageEntry{Slot: 0, Index: i, Page: 1 + i},
				kernels.PageEntry{Slot: 2, Index: i, Page: 33 + i})
		}
		s.Inits = []kernels.Init{{Slot: 0, Prompt: 251, Sampling: kernels.Sampling{Temperature: 0.9, TopK: 50,
			TopP: 0.9, RepeatPenalty: 1.2, Seed: 8, Logprobs: 5}},
			{Slot: 2, Prompt: 4, Sampling: kernels.Sampling{Temperature: 1, TopP: 1, MinP: 0.01, RepeatPenalty: 1,
				Seed: 9}}}
	}
	return s
}
