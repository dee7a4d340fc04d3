//go:build cuda

package kernels

import "reel/kernels/device/cuda"

// pickArgs is PickArgs of pick.cu.
type pickArgs struct {
	x, sample, out, live uint64
	cols, _              int32
}

// CUDA launches a block for each sample.
func (o GatherRows) CUDA(q *cuda.Queue) error {
	return cuda.Launch(q, "reel_pick", cuda.Grid{X: o.N, Threads: elementThreads, Dependent: dependentLaunch}, pickArgs{
		x: q.Address(o.X), sample: q.Address(o.Rows.Sample), out: q.Address(o.Out), live: q.Address(o.Index), cols: int32(o.Cols)})
}
