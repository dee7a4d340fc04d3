package kernels

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Experts of one row whose kernels pass tagged values on, see [Tags].

// ExpertTags is memory that the kernels of [Experts] with Tags pass values on in: as uint64, values with their numbers. It
// takes the place of that of [Chosen] and of the gates' results, which are left as they are.
type ExpertTags struct {
	Logits device.Buffer // float32 [Experts]
	Choice device.Buffer // [Used][2]: an expert, and its float32 weight
	Inner  device.Buffer // pairs of bfloat16, results of the gates [Used][inner/2]
}

// taggedExperts is the most experts of which each block of the gates chooses by itself: TAGGED_EXPERTS of
// gemm/experts_tagged.cuh.
const taggedExperts = 128

// CanTagExperts reports whether there are kernels of one row for a layer's experts, of which it uses so many, that take and
// give tagged values.
func CanTagExperts(gate, up, down Weight, experts, used int) bool {
	if experts > taggedExperts || gate.Rows%(experts*tileRows) != 0 || down.Rows%(experts*tileRows) != 0 ||
		gate.DType != BF16 || up.DType != BF16 || down.DType != BF16 {
		return false
	}
	d := ExpertDown{Down: down, Chosen: Chosen{Experts: experts, Used: used}}
	return CanTag(true, gate, up) && CanTag(false, down) && d.sharedOfOne() > 0
}

// checkTags checks the tags of experts of one row, which come and go in the residual stream alone.
func (o Experts) checkTags() error {
	if o.Tags.Pass.IsZero() {
		return nil
	}
	e, used := o.Route.Chosen.Experts, o.Route.Chosen.Used
	if !CanTagExperts(o.GateUp.Gate, o.GateUp.Up, o.Down.Down, e, used) || o.Tags.In != o.Tags.Out ||
		o.Tags.Taken != o.Tags.Given-1 || o.Down.Store || !o.GateUp.Spread.IsZero() || !o.Down.Spread.IsZero() ||
		!o.Route.RowIndex.IsZero() || !o.GateUp.RowIndex.IsZero() || !o.Down.RowIndex.IsZero() {
		return fmt.Errorf("%w: tags of experts that have no kernels for them", device.ErrBadShape)
	}
	return errors.Join(o.Tags.check(o.Route.T, o.Route.Hidden, o.Route.Hidden), checkBuffers(
		need{"tagged logits", o.Between.Logits, 2 * e}, need{"tagged choice", o.Between.Choice, 4 * used},
		need{"tagged results of gates", o.Between.Inner, used * o.GateUp.inner()}))
}
