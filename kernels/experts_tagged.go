package kernels

import (
	"errors"
	"fmt"
	"slices"

	"reel.internal/reel/kernels/device"
)

// Experts of one row whose kernels pass tagged values on, see [Tags].

// ExpertTags is memory that the kernels of [Experts] with Tags pass values on in: as uint64, values with their numbers.
// It takes the place of that of [Chosen] and of the gates' results, which are left as they are.
type ExpertTags struct {
	Logits device.Buffer // float32 [Experts]
	Choice device.Buffer // [Used][2]: an expert, and its float32 weight
	Inner  device.Buffer // pairs of bfloat16, results of the gates [Used][inner/2]
}

// taggedExperts is the most experts of which each block of the gates chooses by itself: TAGGED_EXPERTS of
// gemm/experts_tagged.cuh.
const taggedExperts = 128

// The types of weights that have kernels of gates and of down projections, without a ring and with one, that have tagged
// values: those of experts.cu whose names end in _tagged.
var (
	taggedGates     = []DType{BF16, Q4_K, Q5_K, F8, G4_128, MXFP4}
	taggedDowns     = []DType{BF16, Q4_K, Q5_K, Q6_K, F8, G4_128}
	taggedDownRings = []DType{MXFP4}
)

// CanTagExperts reports whether there are kernels of one row for a layer's experts, of which it uses so many, that take
// and give tagged values.
func CanTagExperts(gate, up, down Weight, experts, used int) bool {
	for _, w := range []Weight{gate, up, down} {
		if !w.Order.IsZero() || w.Cols%tagColumns != 0 || w.Rows%(experts*tileRows) != 0 {
			return false
		}
	}
	return experts <= taggedExperts && gate.DType == up.DType && canTagGates(gate) &&
		(ExpertDown{Down: down, Chosen: Chosen{Experts: experts, Used: used}}).canTag()
}

// canTagGates reports whether gates have a kernel.
func canTagGates(w Weight) bool {
	if !slices.Contains(taggedGates, w.DType) {
		return false
	}
	if w.DType == BF16 {
		return gemvRowBytes(w.Cols, true) <= gemvShared
	}
	stages, _ := expertRing(w.DType, w.Cols, 1, 2)
	return stages > 0
}

// canTag reports whether the down projection has a kernel: over codes of wide experts the one with a ring, of narrow ones
// the other.
func (o ExpertDown) canTag() bool {
	d, used := o.Down.DType, o.Chosen.Used
	if d == BF16 {
		return o.sharedOfOne() > 0
	}
	if used > codesTokens || !d.Quantised() {
		return false
	}
	if ring, _ := expertDownRing(d, o.Down.Cols, used); ring > 0 {
		return slices.Contains(taggedDownRings, d)
	}
	return slices.Contains(taggedDowns, d) && codesRowsThatFit(d, o.Down.Cols, blockShared) >= used
}

// checkTags checks the tags of experts of one row, which come and go in the residual stream alone.
func (o Experts) checkTags() error {
	if o.Tags.Pass.IsZero() {
		return nil
	}
	e, used := o.Route.Chosen.Experts, o.Route.Chosen.Used
	if !CanTagExperts(o.GateUp.Gate, o.GateUp.Up, o.Down.Down, e, used) || o.Tags.In != o.Tags.Out ||
		o.Tags.Taken != o.Tags.Given-1 || o.Route.Groups > 1 || o.Down.Store != (o.Tags.Ranks > 0) ||
		!o.Route.RowIndex.IsZero() || !o.GateUp.RowIndex.IsZero() || !o.Down.RowIndex.IsZero() {
		return fmt.Errorf("%w: tags of experts that have no kernels for them", device.ErrBadShape)
	}
	return errors.Join(o.Tags.check(o.Route.T, o.Route.Hidden, o.Route.Hidden, o.GateUp.Gate, o.GateUp.Up, o.Down.Down),
		o.Tags.checkSpread(o.GateUp.Spread), o.Tags.checkSpread(o.Down.Spread), checkBuffers(
			need{"tagged logits", o.Between.Logits, 2 * e}, need{"tagged choice", o.Between.Choice, 4 * used},
			need{"tagged results of gates", o.Between.Inner, used * o.Down.Down.Cols}))
}
