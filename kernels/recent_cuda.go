//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

const recentThreads = 64 // at least the rows of a group

// CUDA launches a block per group.
func (o Recent) CUDA(q *cuda.Queue) error {
	at := q.Address
	g := cuda.Grid{X: o.T / o.Queries, Threads: recentThreads, Dependent: true}
	return cuda.Launch(q, "reel_recent", g, recentArgs{slot: at(o.Rows.Slot), position: at(o.Rows.Position),
		blockTable: at(o.Slots.BlockTable), view: at(o.View.BlockTable), viewSlot: at(o.ViewRows.Slot),
		viewPosition: at(o.ViewRows.Position), queries: int32(o.Queries), pages: int32(o.Slots.Pages),
		viewPages: int32(o.View.Pages), pageTokens: int32(o.PageTokens), first: int32(o.First),
		window: int32(o.Window), trash: int32(o.Slots.Count - 1), viewTrash: int32(o.View.Count - 1)})
}
