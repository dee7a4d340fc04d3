//go:build cuda

package kernels

import (
	"math"

	"reel.internal/reel/kernels/device/cuda"
)

// CUDA launches a product whose units are a tile of 16 outputs of Gate and the same of Up.
func (o GateUp) CUDA(q *cuda.Queue) error {
	in := activations{x: q.Address(o.X), norm: q.Address(o.Norm), rows: q.Address(o.RowIndex), cols: int32(o.Gate.Cols),
		n: int32(o.T), eps: o.Eps}
	linear, cubic := o.Activation.exponent()
	p := productLaunch{
		name: "reel_gateup", in: in, units: tilesOf(o.Gate.Rows), tiles: 2, persistent: persistent{0, 1},
		class: o.Class, generated: o.Generated, workspace: o.Workspace, handover: o.Handover,
		weights: []Weight{o.Gate, o.Up}, fewRing: true,
	}
	if (o.Spread.IsZero() || o.Tags.areUsed(q)) && p.persistsForOneRow(q.SMs()) {
		p.name, p.persistent.gemv = "reel_gateup_persistent", 2
	}
	args := gateUpArgs{gate: q.Address(o.Gate.Data), up: q.Address(o.Up.Data), in: in,
		out: q.Address(o.Out), linear: linear, cubic: cubic,
		inner: int32(o.Gate.Rows), scale: o.scale()}
	if o.Tags.areUsed(q) {
		return launchTagged(q, p, o.Tags, o.Gate.Rows/2, args)
	}
	return launchSpreading(q, p, o.Spread, args)
}

// persistsForOneRow reports whether one row is faster with two persistent blocks per SM: where there are more units than
// these, and at most half as many again, which would run alone after the others (notes/few_rows.md).
func (p productLaunch) persistsForOneRow(sms int) bool {
	blocks := 2 * sms
	return p.class == Decode && p.fewRows() == &gemv && !anyQuantised(p.weights) && p.units > blocks && 2*p.units <= 3*blocks
}

// exponent returns the coefficients of -b, to base 2.
func (f Activation) exponent() (linear, cubic float32) {
	l, c := f.coefficients()
	return float32(-l * math.Log2E), float32(-c * math.Log2E)
}
