package kernels

import (
	"errors"
	"fmt"
	"slices"

	"reel.internal/reel/kernels/device"
)

// Tags say how the ops of a pass of one row pass their results on, on GPUs where a kernel may begin before the one before
// it has ended: as tagged values, 8 bytes of a word of data and the number of its pass and layer, which are written at once
// (kernels/ptx/tagged.cuh). Whoever sees the number has the word, so no kernel waits for the end of another. All ops of
// such a pass have Tags, from Embed to Head, and are launched in that order; other devices, and GPUs without such kernels,
// leave them aside and pass the same values in the ops' own buffers. The zero value is none.
type Tags struct {
	// Pass is uint32 [1], what the pass adds to its numbers. Embed raises it, so a replay has numbers of its own.
	Pass device.Buffer
	// In and Out hold uint64 [values], or of values that the next product rounds [values/2]: where the op's input is, and
	// where its results go. A projection adds to the residual stream in Out, in place. Embed has no In, Head no Out.
	In, Out device.Buffer
	// Taken and Given are the numbers of In and Out within the pass. A projection's Out had Given-1 before. Embed gives 0,
	// and the op that takes 0 waits for it and for all before the pass.
	Taken, Given int
	// Ranks is how many GPUs share the pass, or 0: it is one's. They address each other's memory and write to each other's
	// In and Out: an op with a Spread gives its part of Out, one of equal parts, to all of them with these tags, and other
	// devices use the exchange. There are such kernels over bfloat16.
	Ranks int
	// ForCodes says that pairs in Out are for a product over quantised weights, which takes them times 2^64.
	ForCodes bool
}

// tagsOfPass is how many numbers a pass has: TAGS_OF_PASS of ptx/tagged.cuh.
const tagsOfPass = 1024

// MostTaggedLayers is the most layers of a pass whose values are tagged: each layer writes the residual stream twice, and
// Embed once.
const MostTaggedLayers = (tagsOfPass - 1) / 2

// TagBytes returns the size of so many values, or pairs, with their numbers.
func TagBytes(values int) int64 { return 8 * int64(values) }

// tagColumns is what columns of a weight are a multiple of where its input is tagged: those of a K block.
const tagColumns = 64

// CanTag reports whether there are kernels of a product over these weights, with a norm or without, that take and give
// tagged values: over bfloat16 or usual formats of codes, not both, whole blocks of columns, and rows that fit in a block's
// memory. All results of a layer are the columns of another weight.
func CanTag(normed bool, weights ...Weight) bool {
	for _, w := range weights {
		fits := w.DType == BF16 && gemvRowBytes(w.Cols, normed) <= gemvShared || canTagCodes(w.DType, w.Cols)
		if !fits || !w.Order.IsZero() || w.Cols%tagColumns != 0 || w.DType.Quantised() != weights[0].DType.Quantised() {
			return false
		}
	}
	return true
}

// canTagCodes reports whether rows for weights of a format fit in the kernels of one row over codes that have tagged values.
// Gate and up have a ring over bricks of 64 columns. Q4_0 is faster without tagged values (notes/quantised.md, version 8).
func canTagCodes(d DType, cols int) bool {
	if !slices.Contains(usualFormats, d) || d == Q4_0 || codesRowsThatFit(d, cols, blockShared) <= 0 {
		return false
	}
	stages, _, _ := fewRing(d, 1, cols)
	return stages > 0 || bricks[d].columns > quarterColumns
}

// gemvRowBytes returns the shared memory that products of one row over 16 bits need for the row, and for a norm beside it.
func gemvRowBytes(cols int, normed bool) int {
	if normed {
		return 8 * cols
	}
	return 4 * cols
}

// CanTagOnRanks reports whether there are kernels for it over these weights where several GPUs share the pass.
func CanTagOnRanks(weights ...Weight) bool {
	return !slices.ContainsFunc(weights, func(w Weight) bool { return w.DType != BF16 })
}

// CanTagHeads reports whether there is an attention that takes and gives tagged values, over heads of a size and a type
// of keys and values, with sinks or without.
func CanTagHeads(headDim int, kv DType, sinks bool) bool {
	return (headDim == 64 || headDim == 128 && !sinks) && kv == BF16
}

// checkSpread checks the exchange of an op whose results go to all ranks, if several share the pass.
func (t Tags) checkSpread(o Exchange) error {
	if !t.Pass.IsZero() && (o.Ranks != t.Ranks || o.Width != t.Ranks*o.PartCols) {
		return fmt.Errorf("%w: tags of %d GPUs and an exchange of %d columns of %d between %d", device.ErrBadShape, t.Ranks,
			o.PartCols, o.Width, o.Ranks)
	}
	return nil
}

// check checks the tags of an op over these weights of so many rows with so many values, or pairs, in In and Out.
func (t Tags) check(rows, in, out int, weights ...Weight) error {
	if t.Pass.IsZero() {
		return nil
	}
	if t.Ranks == 1 || t.Ranks < 0 || t.Ranks > device.MaxRanks || t.Ranks > 0 && !CanTagOnRanks(weights...) {
		return fmt.Errorf("%w: tags of %d GPUs over these weights", device.ErrBadShape, t.Ranks)
	}
	begins := in == 0
	if rows != 1 || t.Taken < 0 || t.Given < 0 || max(t.Taken, t.Given) >= tagsOfPass || begins && t.Given != 0 {
		return fmt.Errorf("%w: tags %d and %d of a pass of %d rows", device.ErrBadShape, t.Taken, t.Given, rows)
	}
	err := checkBuffers(need{"the number of the pass", t.Pass, 1})
	if !begins {
		err = errors.Join(err, checkBuffers(need{"tagged input", t.In, 2 * in}))
	}
	if out > 0 {
		err = errors.Join(err, checkBuffers(need{"tagged results", t.Out, 2 * out}))
	}
	return err
}
