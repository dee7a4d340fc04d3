//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// CUDA launches a product whose units are tiles of 16 outputs. In the prefill class, whose kernels have no register
// left for it, a kernel before the product stores what it adds to if there is a Bias or Store. If it hands its part of
// rounded rows over, it adds to its columns of the residual stream in place.
func (o Projection) CUDA(q *cuda.Queue) error {
	if o.Generated > 0 && (o.Store || !o.Bias.IsZero() || !o.Spread.IsZero()) {
		return fmt.Errorf("%w: a projection of a mixed pass with a bias, or that stores", device.ErrBadShape)
	}
	x, stride := q.Address(o.X), o.W.Rows
	if o.Class == Prefill && o.Spread.rounds(q) {
		x, stride = q.Address(o.Spread.X)+uint64(4*PartStart(o.Spread.Width, o.Spread.Ranks, q.Rank())), o.Spread.Width
		o.Store = false
	}
	if o.Class == Prefill && (o.Store || !o.Bias.IsZero()) {
		if err := o.launchBegin(q); err != nil {
			return err
		}
		o.Store, o.Bias = false, device.Buffer{}
	}
	in := activations{x: q.Address(o.In), rows: q.Address(o.RowIndex), cols: int32(o.W.Cols), n: int32(o.T)}
	p := productLaunch{name: "reel_projection", in: in, units: tilesOf(o.W.Rows), tiles: 1,
		class: o.Class, generated: o.Generated, workspace: o.Workspace, handover: o.Handover,
		takesCodes: true, weights: []Weight{o.W}, before: o.Before}
	args := projectionArgs{w: q.Address(o.W.Data), in: in, x: x, bias: q.Address(o.Bias), rows: int32(o.W.Rows),
		stores: flag(o.Store), stride: int32(stride)}
	if o.Tags.areUsed(q) {
		if b := o.Spread.Bias; !b.IsZero() { // of all ranks' columns
			args.bias = q.Address(b) + uint64(4*q.Rank()*o.W.Rows)
		}
		return launchTagged(q, p, o.Tags, o.W.Rows, args)
	}
	return launchSpreading(q, p, o.Spread, args)
}

// launchBegin launches the kernel that makes X what the product adds to: a block per row.
func (o Projection) launchBegin(q *cuda.Queue) error {
	g := cuda.Grid{X: o.T, Threads: elementThreads, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_projection_begin", g, beginArgs{x: q.Address(o.X), bias: q.Address(o.Bias),
		cols: int32(o.W.Rows), stores: flag(o.Store)})
}
