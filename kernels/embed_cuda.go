//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// CUDA launches a block per row.
func (o Embed) CUDA(q *cuda.Queue) error {
	kind := formats[o.Table.DType].kernel
	if o.Table.Layout != Codes {
		var err error
		if kind, err = elementsOf(o.Table); err != nil {
			return err
		}
	}
	g := cuda.Grid{X: o.T, Threads: elementThreads, Dependent: tune.DependentLaunch}
	args := embedArgs{table: q.Address(o.Table.Data), token: q.Address(o.Rows.Token), x: q.Address(o.X),
		vocab: int32(o.Table.Rows), hidden: int32(o.Table.Cols), scale: o.scale()}
	if o.Tags.areUsed(q) {
		return cuda.Launch(q, "reel_embed"+kind+"_tagged", g, embedTaggedArgs{args, o.Tags.args(q)})
	}
	return cuda.Launch(q, "reel_embed"+kind, g, args)
}
