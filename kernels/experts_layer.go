package kernels

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Experts is all that a layer computes with its experts: Route, GateUp and Down, one after another, over the same rows.
// As one op they may be fewer kernels, and the choice and the results of the gates stay what they are.
type Experts struct {
	Route  Route
	GateUp ExpertGateUp
	Down   ExpertDown
	// Tags are those of a pass whose values are tagged: In and Out are the residual stream, Taken is Given-1. Between is
	// memory for values that the kernels pass on then; what is chosen and the results of the gates stay there. Without
	// RowIndex, and with Store only beside exchanges of both halves.
	Tags    Tags
	Between ExpertTags
}

// Kernel returns "route and experts".
func (Experts) Kernel() string { return "route and experts" }

// Check compares dimensions, of the three ops and with each other.
func (o Experts) Check() error {
	if err := errors.Join(o.Route.Check(), o.GateUp.Check(), o.Down.Check()); err != nil {
		return err
	}
	if o.GateUp.T != o.Route.T || o.Down.T != o.Route.T || o.GateUp.Chosen != o.Route.Chosen ||
		o.Down.Chosen != o.Route.Chosen || o.Route.Hidden != o.GateUp.Gate.Cols ||
		widthOf(o.Down.Spread, o.Down.hidden()) != o.GateUp.Gate.Cols ||
		o.Down.Down.Cols != widthOf(o.GateUp.Spread, o.GateUp.inner()) {
		return fmt.Errorf("%w: a router and experts of different rows or sizes", device.ErrBadShape)
	}
	return o.checkTags()
}

// widthOf returns the columns that all ranks have of which one has a part, if there is an exchange of them.
func widthOf(o Exchange, part int) int {
	if o.IsZero() {
		return part
	}
	return o.Width
}

// Host computes the three ops.
func (o Experts) Host(h *device.Host) {
	o.Route.Host(h)
	o.GateUp.Host(h)
	o.Down.Host(h)
}
