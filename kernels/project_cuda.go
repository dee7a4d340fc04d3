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
func (o Project) CUDA(q *cuda.Queue) error {
	in := activations{x: q.Address(o.In), cols: int32(o.W.Cols), n: int32(o.T)}
	return launch(q, tiled{"reel_project", in, tilesOf(o.W.Rows), 1, o.Scratch, []Weight{o.W}}, projectArgs{
		w: q.Address(o.W.Data), in: in, x: q.Address(o.X), rows: int32(o.W.Rows)})
}
