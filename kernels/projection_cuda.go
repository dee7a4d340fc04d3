//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// CUDA launches a product whose units are tiles of 16 outputs.
func (o Projection) CUDA(q *cuda.Queue) error {
	in := activations{x: q.Address(o.In), rows: q.Address(o.RowIndex), cols: int32(o.W.Cols), n: int32(o.T)}
	return launch(q, productLaunch{name: "reel_projection", in: in, units: tilesOf(o.W.Rows), tiles: 1,
		class: o.Class, workspace: o.Workspace, handover: o.Handover, gathered: in.rows != 0, weights: []Weight{o.W},
	}, projectionArgs{w: q.Address(o.W.Data), in: in, x: q.Address(o.X), bias: q.Address(o.Bias), rows: int32(o.W.Rows),
		stores: flag(o.Store)})
}
