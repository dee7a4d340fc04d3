//go:build cuda

package kernels

import "reel/kernels/device/cuda"

// projectArgs is ProjectArgs of project.cu.
type projectArgs struct {
	w    uint64
	in   activations
	x    uint64
	rows int32
	_    int32
}

// CUDA launches a product whose units are tiles of 16 outputs.
func (o Projection) CUDA(q *cuda.Queue) error {
	in := activations{x: q.Address(o.In), rows: q.Address(o.RowIndex), cols: int32(o.W.Cols), n: int32(o.T)}
	return launch(q, tiled{name: "reel_project", in: in, units: tilesOf(o.W.Rows), tiles: 1, scratch: o.Workspace.Rounded, parts: o.Workspace.Partials, prefill: o.Class == Prefill, picked: in.rows != 0,
		ready: o.Handover.InputIsRounded, next: o.Handover.Rounded, nextNorm: q.Address(o.Handover.Norm), weights: []Weight{o.W}}, projectArgs{
		w: q.Address(o.W.Data), in: in, x: q.Address(o.X), rows: int32(o.W.Rows)})
}
