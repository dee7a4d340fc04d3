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
	return launchProduct(q, "reel_head", o.N, tilesOf(o.W.Rows), 1, headArgs{
		w: q.Address(o.W.Data),
		in: activations{x: q.Address(o.X), norm: q.Address(o.Norm), rows: q.Address(o.Rows.Sample),
			cols: int32(o.W.Cols), n: int32(o.N), eps: o.Eps},
		logits: q.Address(o.Logits), vocab: int32(o.W.Rows)}, o.W)
}
