//go:build cuda

package cudatest

import (
	"fmt"
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// slowColumns are those of a row that one block embeds for about a millisecond, and lastColumns those that are read
// of it.
const (
	slowColumns = 1 << 23
	lastColumns = 256
)

// slowEmbed is an op of one block that lets the next kernel begin at once and goes on long after it, and then an op
// that reads what it writes last.
type slowEmbed struct {
	*both
	slow kernels.Embed
	then kernels.GatherRows
}

func newSlowEmbed(b *both) slowEmbed {
	zeros := func(bytes int64) device.Buffer {
		x, err := b.g.Alloc(bytes)
		b.must(err)
		b.t.Cleanup(func() { b.must(b.g.Free(x)) })
		return x
	}
	const rows = slowColumns / lastColumns
	table := kernels.Weight{DType: kernels.BF16, Layout: kernels.Fragments, Rows: 16, Cols: slowColumns,
		Data: zeros(2 * 16 * slowColumns)}
	x, last := zeros(4*slowColumns), b.load(1, bytesOf([]int32{rows - 1}))
	return slowEmbed{b, kernels.Embed{Table: table, Rows: kernels.Rows{Token: zeros(4)}, X: x, T: 1},
		kernels.GatherRows{X: x, Rows: kernels.Rows{Sample: last}, Out: zeros(4 * lastColumns), Index: zeros(4),
			Cols: lastColumns, T: rows, N: 1}}
}

// endsBefore reports whether an op between these two ends before the first of them has, so that the last one reads
// poison.
func (s slowEmbed) endsBefore(op device.Op) bool {
	s.onGPU(kernels.Fill{Data: s.slow.X, Value: kernels.Poison})
	s.replay(s.slow, op, s.then)
	return anyNaN(read[uint32](s.both, 1, s.then.Out))
}

// give leaves values in all memory of the pass that have the numbers which the i-th op of the last of n layers, or the
// head after them, takes: each word is a number, and the value before it the same bits.
func (p *taggedPass) give(i, perLayer int) {
	attended := 2*len(p.layers) - 1
	stream := attended
	switch {
	case i < 3: // QKV, attention and the output projection
		stream = attended - 1
	case i == perLayer:
		stream = attended + 1
	}
	fill := func(x device.Buffer, number int) { p.onGPU(kernels.Fill{Data: x, Value: uint32(number)}) }
	fill(p.pass, 0)
	fill(p.tx, stream)
	fill(p.tqkv, attended)
	fill(p.ta, attended)
	fill(p.tin, attended+1)
}

// early returns the ops of a last layer, and the head, that end before the kernel before them has.
func early(b *both, slow slowEmbed, s taggedShape) (ended []string) {
	w := b.taggedWeights(s)
	kv := w.pool()
	p := newTaggedPass(b, w, bitsOf(b.normal(int(kv.PageBytes()/2)*kv.Pages, 1)))
	p.begin()
	p.next(3, true)
	p.onGPU(p.op(1, 1, 1))
	perLayer := 5
	if s.experts > 0 {
		perLayer = 4
	}
	ops := p.ops()
	ops = ops[len(ops)-1-perLayer:]
	for i, op := range ops {
		p.give(i, perLayer)
		if slow.endsBefore(op) {
			ended = append(ended, fmt.Sprintf("op %d, %s", i, op.Kernel()))
		}
	}
	return ended
}

// taggedEnds have each loop that takes tagged values, with two layers at least: the first QKV of a pass waits.
func taggedEnds() []taggedShape {
	codes, mixtures := taggedCodes(), taggedMixtures()
	return []taggedShape{taggedShapes[1], taggedShapes[2], taggedShapes[5], codes[2], codes[5], mixtures[0], mixtures[4],
		mixtures[9]}
}

// An op with tagged values waits for no end of a kernel, yet its own end means that of all kernels before it: an op
// after it reads what they have written.
func TestCUDATaggedEndsLast(t *testing.T) {
	b := newBoth(t)
	slow := newSlowEmbed(b)
	for _, s := range taggedEnds() {
		if ended := early(b, slow, s); len(ended) > 0 {
			t.Errorf("%s: %v end before the kernel before them", s.name(), ended)
		}
	}
}
