//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// CUDA launches a block per sample. It copies four elements at a time; [CheckPacked] refuses a model
// whose rows are no multiple of that.
func (o GatherRows) CUDA(q *cuda.Queue) error {
	if o.Cols%4 != 0 {
		return fmt.Errorf("%w: rows of %d, which is no multiple of 4", device.ErrBadShape, o.Cols)
	}
	g := cuda.Grid{X: o.N, Threads: elementThreads, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_gather", g, gatherArgs{x: q.Address(o.X), sample: q.Address(o.Rows.Sample),
		out: q.Address(o.Out), index: q.Address(o.Index), cols: int32(o.Cols)})
}
