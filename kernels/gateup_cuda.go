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
	linear, cubic := o.Activation.coefficients()
	return launchSpreading(q, productLaunch{
		name: "reel_gateup", in: in, units: tilesOf(o.Gate.Rows), tiles: 2, persistent: persistent{0, 1},
		class: o.Class, workspace: o.Workspace, handover: o.Handover, gathered: in.rows != 0,
		weights: []Weight{o.Gate, o.Up}, fewRing: true,
	}, o.Spread, gateUpArgs{gate: q.Address(o.Gate.Data), up: q.Address(o.Up.Data), in: in, out: q.Address(o.Out),
		linear: float32(-linear * math.Log2E), cubic: float32(-cubic * math.Log2E), inner: int32(o.Gate.Rows), scale: o.scale()})
}
