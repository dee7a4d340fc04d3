//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// CUDA copies 16 bytes per thread.
func (o CopyPage) CUDA(q *cuda.Queue) error {
	n := o.KV.PageBytes()
	if n%16 != 0 {
		return fmt.Errorf("%w: page of %d bytes, no multiple of 16", device.ErrBadShape, n)
	}
	pool, words := q.Address(o.KV.Data), n/16
	return cuda.Launch(q, "reel_copypage", cuda.Grid{X: blocksFor(q, words), Threads: elementThreads}, copyPageArgs{
		from: pool + uint64(int64(o.From)*n), to: pool + uint64(int64(o.To)*n), words: words})
}

// CUDA copies 16 bytes per thread, with the kernel of CopyPage.
func (o Upload) CUDA(q *cuda.Queue) error {
	words := o.Dst.Bytes() / 16
	return cuda.Launch(q, "reel_copypage", cuda.Grid{X: blocksFor(q, words), Threads: elementThreads}, copyPageArgs{
		from: q.Address(o.of(q.Rank())), to: q.Address(o.Dst), words: words})
}

// elementThreads is the block size of kernels whose threads process elements in a grid-stride loop.
const elementThreads = 256

// blocksFor returns the number of such blocks for n elements: at most those that run at the same time.
func blocksFor(q *cuda.Queue, n int64) int {
	return int(min((n+elementThreads-1)/elementThreads, int64(8*q.SMs())))
}
