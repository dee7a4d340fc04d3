//go:build cuda

package kernels

import (
	"fmt"

	"reel/kernels/device"
	"reel/kernels/device/cuda"
)

// CUDA copies 16 bytes a thread.
func (o CopyPage) CUDA(q *cuda.Queue) error {
	n := o.KV.PageBytes()
	if n%16 != 0 {
		return fmt.Errorf("%w: page of %d bytes, which 16 does not divide", device.ErrBadShape, n)
	}
	pool, words := q.Address(o.KV.Data), n/16
	return cuda.Launch(q, "reel_copypage", cuda.Grid{X: blocksFor(q, words), Threads: elementThreads}, copyPageArgs{
		from: pool + uint64(int64(o.From)*n), to: pool + uint64(int64(o.To)*n), words: words})
}

// elementThreads is the block of kernels that give each thread an element in turn.
const elementThreads = 256

// blocksFor is how many such blocks n elements take: at most what the GPU holds at once.
func blocksFor(q *cuda.Queue, n int64) int {
	return int(min((n+elementThreads-1)/elementThreads, int64(8*q.SMs())))
}
