//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// CUDA launches a block per sample.
func (o GatherRows) CUDA(q *cuda.Queue) error {
	g := cuda.Grid{X: o.N, Threads: elementThreads, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_gather", g, gatherArgs{x: q.Address(o.X), sample: q.Address(o.Rows.Sample),
		out: q.Address(o.Out), index: q.Address(o.Index), cols: int32(o.Cols)})
}
