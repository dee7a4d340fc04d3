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

// CUDA launches a product whose units are 16 rows of a head and those that RoPE pairs with them.
func (o QKV) CUDA(q *cuda.Queue) error {
	d := o.KV.HeadDim
	if d%(2*tileRows) != 0 {
		return fmt.Errorf("%w: head size %d, which must be a multiple of %d", device.ErrBadShape, d, 2*tileRows)
	}
	if !o.Bias.IsZero() || !o.HeadNorms.IsZero() {
		return fmt.Errorf("%w: biases and head norms are not on the GPU yet", device.ErrBadShape)
	}
	units := (o.Heads + 2*o.KV.Heads) * (d / (2 * tileRows))
	in := activations{x: q.Address(o.X), norm: q.Address(o.Norm), cols: int32(o.Hidden), n: int32(o.T), eps: o.Eps}
	return launch(q, tiled{name: "reel_qkv", in: in, units: units, tiles: 2, scratch: o.Scratch, prefill: o.Prefill, ready: o.Ready,
		weights: []Weight{o.Q, o.K, o.V}}, qkvArgs{
		q: q.Address(o.Q.Data), k: q.Address(o.K.Data), v: q.Address(o.V.Data), in: in,
		rope: q.Address(o.RoPE), slot: q.Address(o.Rows.Slot), position: q.Address(o.Rows.Position),
		table: q.Address(o.Slots.BlockTable), pool: q.Address(o.KV.Data), out: q.Address(o.Out),
		heads: int32(o.Heads), kvHeads: int32(o.KV.Heads), dim: int32(d), pages: int32(o.Slots.Pages),
		layer: int32(o.Layer), layers: int32(o.KV.Layers), pageTokens: int32(o.KV.PageTokens), kvType: int32(o.KV.DType)})
}
