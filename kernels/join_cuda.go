//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// addresses returns the address of page 0's feature, and the elements from one page's to the next one's.
func (f Features) addresses(q *cuda.Queue) (first uint64, stride int64) {
	return q.Address(f.Pool.Data) + uint64(4*f.Pool.at(0, f.Layer, 0, 0)), f.Pool.PageBytes() / 4
}

// CUDA launches a block per row.
func (o Join) CUDA(q *cuda.Queue) error {
	at, slots := q.Address, o.Slots.addresses(q)
	g := cuda.Grid{X: o.T, Threads: captureThreads, Dependent: tune.DependentLaunch}
	args := joinArgs{embedded: at(o.Embedded), norm: at(o.Norm), x: at(o.X), out: at(o.Out), slot: at(o.Rows.Slot),
		position: at(o.Rows.Position), blockTable: slots.blockTable, cols: int32(o.Cols), pages: int32(o.Slots.Pages),
		pageTokens: int32(o.Kept.PageTokens), own: word(o.Own), normed: word(o.NormedResidual), eps: o.Eps}
	if !o.Features.IsZero() {
		args.features = at(o.Features)
	}
	if !o.Output.IsZero() {
		args.output = at(o.Output)
	}
	if !o.Own {
		args.kept, args.pageStride = o.Kept.addresses(q)
	}
	return cuda.Launch(q, "reel_join", g, args)
}
