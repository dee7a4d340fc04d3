//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// CUDA packs 16 bytes per thread.
func (o Pack) CUDA(q *cuda.Queue) error {
	name := "reel_pack_16"
	if o.DType == F32 { // 32 bits an element
		name = "reel_pack_32"
	}
	n := o.packed().bytes() / 16
	return cuda.Launch(q, name, cuda.Grid{X: blocksFor(q, n), Threads: elementThreads}, packArgs{
		src: q.Address(o.Src), dst: q.Address(o.Dst), rows: int32(o.Rows), cols: int32(o.Cols)})
}
