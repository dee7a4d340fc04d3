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

// CUDA launches a product over the sampled rows. Of a list there is mostly one row: the kernel of
// one has read the weights when that of eight is at three quarters of them (NOTES.md), and the others,
// if any, read them again.
func (o Head) CUDA(q *cuda.Queue) error {
	if o.Class != Prefill || o.N == 1 {
		return o.launch(q, 0, o.N)
	}
	if err := o.launch(q, 0, 1); err != nil {
		return err
	}
	return o.launch(q, 1, o.N-1)
}

// launch launches a product over n sampled rows, from the first-th on.
func (o Head) launch(q *cuda.Queue, first, n int) error {
	in := activations{x: q.Address(o.X), norm: q.Address(o.Norm), rows: q.Address(o.Rows.Sample) + uint64(4*first),
		cols: int32(o.W.Cols), n: int32(n), eps: o.Eps}
	return launch(q, tiled{name: "reel_head", in: in, units: tilesOf(o.W.Rows), tiles: 1, inTurn: inTurn{2, 2}, scratch: o.Workspace.Rounded, picked: o.Class == Prefill,
		weights: []Weight{o.W}}, headArgs{
		w: q.Address(o.W.Data), in: in, logits: q.Address(o.Logits) + uint64(4*first*o.W.Rows), vocab: int32(o.W.Rows)})
}
