//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// CUDA moves one word per thread.
func (o Restore) CUDA(q *cuda.Queue) error {
	words := restoreHead + o.Pages + o.Tokens
	return cuda.Launch(q, "reel_restore", cuda.Grid{X: blocksFor(q, int64(words)), Threads: elementThreads}, restoreArgs{
		staged: q.Address(o.Staged), slots: o.Slots.addresses(q), slot: int32(o.Slot), pages: int32(o.Pages),
		tokens: int32(o.Tokens), tablePages: int32(o.Slots.Pages), context: int32(o.Slots.Context)})
}
