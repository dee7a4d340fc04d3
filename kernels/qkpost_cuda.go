//go:build cuda

package kernels

import (
	"reel/kernels/device"
	"reel/kernels/device/cuda"
)

// TURN_WARPS of turn.cu, and the largest head that it takes.
const (
	qkPostWarps    = 4
	maxPostHeadDim = 128
)

// args are a kernel's arguments, where q has the rows' queries.
func (o rowsPost) args(queue *cuda.Queue, q device.Buffer) qkPostArgs {
	return qkPostArgs{
		q: queue.Address(q), kv: queue.Address(o.BeforeRoPE.Data), bias: queue.Address(o.Bias), norms: queue.Address(o.HeadNorms), rope: queue.Address(o.RoPE),
		slot: queue.Address(o.rows.Slot), position: queue.Address(o.rows.Position), table: queue.Address(o.slots.BlockTable), pool: queue.Address(o.kv.Data),
		t: int32(o.t), heads: int32(o.heads), kvHeads: int32(o.kv.Heads), dim: int32(o.kv.HeadDim), pages: int32(o.slots.Pages),
		layer: int32(o.layer), layers: int32(o.kv.Layers), pageTokens: int32(o.kv.PageTokens), kvType: int32(o.kv.DType), eps: o.Eps}
}
