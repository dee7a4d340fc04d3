//go:build cuda

package kernels

import (
	"fmt"

	"reel/kernels/device"
	"reel/kernels/device/cuda"
)

// qkvArgs is QKVArgs of qkv.cu.
type qkvArgs struct {
	q, k, v                                uint64
	in                                     activations
	rope, slot, position, table, pool, out uint64
	heads, kvHeads, dim, pages             int32
	layer, layers, pageTokens, kvType      int32
}

// CUDA launches a product whose units are 16 rows of a head and those that RoPE pairs
// with them. Biases and norms of heads, which need all rows of a head, and RoPE after
// them are a kernel of their own, or come with attention (Unturned): then the product turns
// nothing, and leaves k and v in Raw.
func (o QKV) CUDA(q *cuda.Queue) error {
	d := o.KV.HeadDim
	if d%(2*tileRows) != 0 {
		return fmt.Errorf("%w: head size %d, which must be a multiple of %d", device.ErrBadShape, d, 2*tileRows)
	}
	args := o.args(q)
	raw := o.apart()
	if raw {
		if err := o.BeforeRoPE.check(o.T, o.KV.Heads, d); err != nil {
			return err
		}
		if d > turnHeadDim {
			return fmt.Errorf("%w: biases and norms of heads of %d, at most %d", device.ErrBadShape, d, turnHeadDim)
		}
		args.rope, args.slot, args.position, args.table = q.Address(o.BeforeRoPE.Identity), q.Address(o.BeforeRoPE.Index), q.Address(o.BeforeRoPE.Zero), q.Address(o.BeforeRoPE.Index)
		args.pool, args.pages, args.layer, args.layers, args.pageTokens, args.kvType = q.Address(o.BeforeRoPE.Data), 1, 0, 1, 1, int32(F32)
	}
	units := (o.Heads + 2*o.KV.Heads) * (d / (2 * tileRows))
	err := launch(q, tiled{name: "reel_qkv", in: args.in, units: units, tiles: 2, inTurn: inTurn{2, 1}, scratch: o.Workspace.Rounded, parts: o.Workspace.Partials, prefill: o.Class == Prefill,
		ready: o.Handover.InputIsRounded, weights: []Weight{o.Q, o.K, o.V}}, args)
	if err != nil || !raw || o.DeferRoPE {
		return err
	}
	return o.turn(q)
}

// args are the arguments of the product.
func (o QKV) args(q *cuda.Queue) qkvArgs {
	return qkvArgs{
		q: q.Address(o.Q.Data), k: q.Address(o.K.Data), v: q.Address(o.V.Data),
		in:   activations{x: q.Address(o.X), norm: q.Address(o.Norm), cols: int32(o.Hidden), n: int32(o.T), eps: o.Eps},
		rope: q.Address(o.RoPE), slot: q.Address(o.Rows.Slot), position: q.Address(o.Rows.Position),
		table: q.Address(o.Slots.BlockTable), pool: q.Address(o.KV.Data), out: q.Address(o.Out),
		heads: int32(o.Heads), kvHeads: int32(o.KV.Heads), dim: int32(o.KV.HeadDim), pages: int32(o.Slots.Pages),
		layer: int32(o.Layer), layers: int32(o.KV.Layers), pageTokens: int32(o.KV.PageTokens), kvType: int32(o.KV.DType)}
}

// turn launches the kernel that adds biases, norms heads, turns them and appends k and v.
func (o QKV) turn(q *cuda.Queue) error {
	heads := o.T * (o.Heads + 2*o.KV.Heads)
	g := cuda.Grid{X: (heads + turnWarps - 1) / turnWarps, Threads: 32 * turnWarps, Dependent: dependentLaunch}
	return cuda.Launch(q, "reel_turn", g, o.post().args(q, o.Out))
}
