//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// CUDA launches a block per row.
func (o Keep) CUDA(q *cuda.Queue) error {
	at, slots := q.Address, o.Slots.addresses(q)
	first, stride := o.Kept.addresses(q)
	g := cuda.Grid{X: o.T, Threads: elementThreads, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_keep", g, keepArgs{x: at(o.X), slot: at(o.Rows.Slot), position: at(o.Rows.Position),
		length: slots.length, blockTable: slots.blockTable, kept: first, pageStride: stride, cols: int32(o.Kept.cols()),
		pages: int32(o.Slots.Pages), pageTokens: int32(o.Kept.PageTokens), trash: int32(o.Slots.Count - 1)})
}
