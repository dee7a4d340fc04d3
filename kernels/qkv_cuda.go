//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// CUDA launches a product whose units are 16 rows of a head and the 16 rows that RoPE pairs
// with them. Without biases and head norms the product applies RoPE itself. Otherwise it
// applies the identity rotation and writes k and v to BeforeRoPE, because a norm needs
// all rows of a head or of all heads; a second kernel, or with DeferRoPE the next attention, does the rest.
// Norms over all heads have a kernel of their own before that.
func (o QKV) CUDA(q *cuda.Queue) error {
	d := o.KV.HeadDim
	if d%(2*tileRows) != 0 {
		return fmt.Errorf("%w: head size %d, which must be a multiple of %d", device.ErrBadShape, d, 2*tileRows)
	}
	if o.KV.Values > 0 {
		return fmt.Errorf("%w: values apart on a GPU in pages whose keys hold them", device.ErrBadShape)
	}
	if err := o.KV.checkUnits(o.Layer); err != nil {
		return err
	}
	args := o.args(q)
	if o.Tags.areUsed(q) {
		return launchTagged(q, o.product(args, true), o.Tags, 0, args)
	}
	if o.hasPost() {
		if err := o.checkPost(); err != nil {
			return err
		}
		o.BeforeRoPE.redirect(q, &args)
	}
	err := launch(q, o.product(args, false), args)
	if err == nil && !o.WidthNorms.IsZero() {
		err = o.launchWidthNorms(q)
	}
	if err != nil || !o.hasPost() || o.DeferRoPE {
		return err
	}
	return o.post().launch(q, o.Out)
}

// product returns the launch of the product with these arguments. One row before QK post-processing, as tagged values
// are, has units of one tile.
func (o QKV) product(args qkvArgs, tagged bool) productLaunch {
	each := o.KV.HeadDim / (2 * tileRows)
	weights, unitsOf := []Weight{o.Q, o.K, o.V}, []int{o.Heads * each, o.KV.Heads * each, o.KV.Heads * each}
	if o.QueriesOnly {
		weights, unitsOf = weights[:1], unitsOf[:1]
	}
	p := productLaunch{name: "reel_qkv", in: args.in, units: int(args.heads+2*args.kvHeads) * each, tiles: 2,
		persistent: persistent{2, 1}, class: o.Class, generated: o.Generated,
		workspace: o.Workspace, handover: o.Handover, takesCodes: true,
		weights: weights, unitsOf: unitsOf,
		leaves: o.T * rowBlocks(o.KV.Heads, o.Heads/o.KV.Heads)}
	if tagged || o.hasPost() && o.Class == Decode && p.fewRows() == &gemv && !anyQuantised(p.weights) {
		p.name, p.units, p.tiles = "reel_qkv_apart", 2*p.units, 1
		for i := range p.unitsOf {
			p.unitsOf[i] *= 2
		}
	}
	return p
}

// args returns the arguments of a product that applies RoPE itself.
func (o QKV) args(q *cuda.Queue) qkvArgs {
	layer, layers := o.KV.units(o.Layer)
	_, keys := o.post().widths() // none of queries alone
	return qkvArgs{
		q: q.Address(o.Q.Data), k: q.Address(o.K.Data), v: q.Address(o.V.Data),
		in:   activations{x: q.Address(o.X), norm: q.Address(o.Norm), cols: int32(o.Hidden), n: int32(o.T), eps: o.Eps},
		rope: q.Address(o.RoPE), slot: q.Address(o.Rows.Slot), position: q.Address(o.Rows.Position),
		table: q.Address(o.Slots.BlockTable), pool: q.Address(o.KV.Data), out: q.Address(o.Out),
		heads: int32(o.Heads), kvHeads: int32(keys / o.KV.HeadDim), dim: int32(o.KV.HeadDim), kvType: int32(o.KV.DType),
		layer: int32(layer), layers: int32(layers), pages: int32(o.Slots.Pages),
		pageTokens: int32(o.KV.PageTokens)}
}

// redirect makes a product write k and v to r, without RoPE.
func (r KVBeforeRoPE) redirect(q *cuda.Queue, args *qkvArgs) {
	args.rope, args.position = q.Address(r.Identity), q.Address(r.Zero)
	args.slot, args.table = q.Address(r.Index), q.Address(r.Index)
	args.pool, args.kvType = q.Address(r.Data), int32(F32)
	args.pages, args.layer, args.layers, args.pageTokens = 1, 0, 1, 1
}

// checkPost refuses dimensions that the kernels for biases and head norms do not support.
func (o QKV) checkPost() error {
	if d := o.KV.HeadDim; d > mostPostHeadDim {
		return fmt.Errorf("%w: biases or norms of heads of %d, at most %d", device.ErrBadShape, d, mostPostHeadDim)
	}
	return o.BeforeRoPE.check(o.T, o.KV.Heads, o.KV.HeadDim)
}

const widthNormsThreads = 256 // WIDTH_NORMS_THREADS of widthnorms.cu

// launchWidthNorms launches the kernel for norms over all heads, in place: a block for q and one for k of each row.
func (o QKV) launchWidthNorms(q *cuda.Queue) error {
	g := cuda.Grid{X: o.T, Y: 2, Threads: widthNormsThreads, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_widthnorms", g, widthNormsArgs{q: q.Address(o.Out), kv: q.Address(o.BeforeRoPE.Data),
		norms: q.Address(o.WidthNorms), queries: int32(o.Q.Rows), keys: int32(o.K.Rows), parts: 2, eps: o.headEps()})
}
