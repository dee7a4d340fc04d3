//go:build cuda

package kernels

import "reel/kernels/device/cuda"

// CUDA copies 16 bytes a thread, with the kernel that copies pages.
func (o Upload) CUDA(q *cuda.Queue) error {
	words := o.Src.Bytes() / 16
	return cuda.Launch(q, "reel_copypage", cuda.Grid{X: blocksFor(q, words), Threads: elementThreads}, copyPageArgs{
		from: q.Address(o.Src), to: q.Address(o.Dst), words: words})
}
