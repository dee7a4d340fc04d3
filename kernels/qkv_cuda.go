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
	bias, raw                              uint64
	heads, kvHeads, dim, pages             int32
	layer, layers, pageTokens, kvType      int32
}

// turnArgs is TurnArgs of turn.cu.
type turnArgs struct {
	q, k, norms, rope, slot, position, table, pool uint64
	t, heads, kvHeads, dim, pages                  int32
	layer, layers, pageTokens, kvType              int32
	eps                                            float32
}

// TURN_WARPS of turn.cu, and the largest head that it takes.
const (
	turnWarps   = 4
	turnHeadDim = 256
)

// CUDA launches a product whose units are 16 rows of a head and those that RoPE pairs
// with them. A head's norm needs all of its rows, so head norms, and RoPE after them,
// are a kernel of their own.
func (o QKV) CUDA(q *cuda.Queue) error {
	d := o.KV.HeadDim
	if d%(2*tileRows) != 0 {
		return fmt.Errorf("%w: head size %d, which must be a multiple of %d", device.ErrBadShape, d, 2*tileRows)
	}
	var raw uint64
	if !o.HeadNorms.IsZero() {
		if err := checkBuffers(need{"raw k", o.Raw, o.T * o.K.Rows}); err != nil {
			return err
		}
		if d > turnHeadDim {
			return fmt.Errorf("%w: norms of heads of %d, at most %d", device.ErrBadShape, d, turnHeadDim)
		}
		raw = q.Address(o.Raw)
	}
	units := (o.Heads + 2*o.KV.Heads) * (d / (2 * tileRows))
	in := activations{x: q.Address(o.X), norm: q.Address(o.Norm), cols: int32(o.Hidden), n: int32(o.T), eps: o.Eps}
	err := launch(q, tiled{name: "reel_qkv", in: in, units: units, tiles: 2, scratch: o.Scratch, prefill: o.Prefill, ready: o.Ready,
		weights: []Weight{o.Q, o.K, o.V}}, qkvArgs{
		q: q.Address(o.Q.Data), k: q.Address(o.K.Data), v: q.Address(o.V.Data), in: in,
		rope: q.Address(o.RoPE), slot: q.Address(o.Rows.Slot), position: q.Address(o.Rows.Position),
		table: q.Address(o.Slots.BlockTable), pool: q.Address(o.KV.Data), out: q.Address(o.Out), bias: q.Address(o.Bias), raw: raw,
		heads: int32(o.Heads), kvHeads: int32(o.KV.Heads), dim: int32(d), pages: int32(o.Slots.Pages),
		layer: int32(o.Layer), layers: int32(o.KV.Layers), pageTokens: int32(o.KV.PageTokens), kvType: int32(o.KV.DType)})
	if err != nil || raw == 0 {
		return err
	}
	return o.turn(q)
}

// turn launches the kernel that norms the heads of q and k, turns them and appends k.
func (o QKV) turn(q *cuda.Queue) error {
	g := cuda.Grid{X: (o.T*(o.Heads+o.KV.Heads) + turnWarps - 1) / turnWarps, Threads: 32 * turnWarps, Dependent: dependentLaunch}
	return cuda.Launch(q, "reel_turn", g, turnArgs{
		q: q.Address(o.Out), k: q.Address(o.Raw), norms: q.Address(o.HeadNorms), rope: q.Address(o.RoPE), slot: q.Address(o.Rows.Slot),
		position: q.Address(o.Rows.Position), table: q.Address(o.Slots.BlockTable), pool: q.Address(o.KV.Data),
		t: int32(o.T), heads: int32(o.Heads), kvHeads: int32(o.KV.Heads), dim: int32(o.KV.HeadDim), pages: int32(o.Slots.Pages),
		layer: int32(o.Layer), layers: int32(o.KV.Layers), pageTokens: int32(o.KV.PageTokens), kvType: int32(o.KV.DType), eps: o.Eps})
}
