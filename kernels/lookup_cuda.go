//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// Constants of lookup.cu: threads of a block, and the largest context, whose positions it counts in 27 bits.
const (
	lookupThreads = 1024
	lookupContext = 1 << 27
)

// CUDA launches a block per group.
func (o Lookup) CUDA(q *cuda.Queue) error {
	if o.Slots.Context > lookupContext {
		return fmt.Errorf("%w: a lookup on a GPU in %d tokens, at most %d", device.ErrBadShape, o.Slots.Context,
			lookupContext)
	}
	at, masked := q.Address, o.Slots.masked(q)
	return cuda.Launch(q, "reel_lookup", cuda.Grid{X: o.T / o.Queries, Threads: lookupThreads, Dependent: true},
		lookupArgs{slot: at(o.Rows.Slot), position: at(o.Rows.Position), token: at(o.Rows.Token),
			history: at(o.Slots.History), masked: masked, queries: int32(o.Queries), context: int32(o.Slots.Context),
			trash: int32(o.Slots.Count - 1), stride: ParamWords})
}
