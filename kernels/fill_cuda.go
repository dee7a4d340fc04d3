//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// CUDA fills 4 bytes per thread, because a part of a buffer may start at any element.
func (o Fill) CUDA(q *cuda.Queue) error {
	n := o.Data.Bytes() / 4
	return cuda.Launch(q, "reel_fill", cuda.Grid{X: blocksFor(q, n), Threads: elementThreads}, fillArgs{
		data: q.Address(o.Data), n: n, value: o.Value})
}
