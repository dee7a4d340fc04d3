//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// CUDA packs 16 bytes per thread, of quantised weights a brick per warp.
func (o Pack) CUDA(q *cuda.Queue) error {
	if o.DType.Quantised() {
		bricks := tilesOf(o.Rows) * bricks[o.DType].count(o.Cols)
		g := cuda.Grid{X: blocksFor(q, int64(32*bricks)), Threads: elementThreads}
		return cuda.Launch(q, "reel_pack"+formats[o.DType].kernel, g, packCodesArgs{
			src: q.Address(o.Src), dst: q.Address(o.Dst), rows: int32(o.Rows), cols: int32(o.Cols)})
	}
	name := "reel_pack_16"
	if o.DType == F32 { // 32 bits an element
		name = "reel_pack_32"
	}
	n := o.packed().bytes() / 16
	return cuda.Launch(q, name, cuda.Grid{X: blocksFor(q, n), Threads: elementThreads}, packArgs{
		src: q.Address(o.Src), dst: q.Address(o.Dst), rows: int32(o.Rows), cols: int32(o.Cols)})
}
