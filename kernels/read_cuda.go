//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// CUDA reads 16 bytes per load, eight loads per thread.
func (o Read) CUDA(q *cuda.Queue) error {
	n := o.Data.Bytes() / 16
	return cuda.Launch(q, "reel_read", cuda.Grid{X: blocksFor(q, (n+7)/8), Threads: elementThreads}, readArgs{
		data: q.Address(o.Data), out: q.Address(o.Out), n: n})
}
