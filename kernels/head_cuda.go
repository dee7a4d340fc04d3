//go:build cuda

package kernels

import "reel/kernels/device/cuda"

// headArgs is HeadArgs of head.cu.
type headArgs struct {
	w      uint64
	in     activations
	logits uint64
	vocab  int32
	_      int32
}

// CUDA launches a product over the sampled rows.
func (o Head) CUDA(q *cuda.Queue) error {
	in := activations{x: q.Address(o.X), norm: q.Address(o.Norm), rows: q.Address(o.Rows.Sample),
		cols: int32(o.W.Cols), n: int32(o.N), eps: o.Eps}
	return launch(q, tiled{name: "reel_head", in: in, units: tilesOf(o.W.Rows), tiles: 1, inTurn: inTurn{2, 2}, scratch: o.Scratch, picked: o.Picked,
		weights: []Weight{o.W}}, headArgs{
		w: q.Address(o.W.Data), in: in, logits: q.Address(o.Logits), vocab: int32(o.W.Rows)})
}
