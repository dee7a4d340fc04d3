//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// Constants of qkpost.cu: warps per block, and the largest heads that a warp holds, by kernel.
const (
	qkPostWarps     = 4
	postHeadDim     = 128
	widePostHeadDim = 256
	mostPostHeadDim = 512
)

// launch launches the kernel that post-processes the rows' queries in q, in place, and stores their keys and values.
func (o rowsPost) launch(queue *cuda.Queue, q device.Buffer) error {
	args := o.args(queue, q)
	heads := o.t * int(args.heads+2*args.kvHeads)
	g := cuda.Grid{X: (heads + qkPostWarps - 1) / qkPostWarps, Threads: 32 * qkPostWarps,
		Dependent: tune.DependentLaunch}
	name := "reel_qkpost"
	switch d := o.kv.HeadDim; {
	case d > widePostHeadDim:
		name = "reel_qkpost_512"
	case d > postHeadDim:
		name = "reel_qkpost_256"
	}
	return cuda.Launch(queue, name, g, args)
}

// args returns the arguments of kernels that post-process the rows' queries in q.
func (o rowsPost) args(queue *cuda.Queue, q device.Buffer) qkPostArgs {
	at := queue.Address
	layer, layers := o.kv.units(o.layer)
	_, keys := o.widths() // none of queries alone
	return qkPostArgs{
		q: at(q), kv: at(o.BeforeRoPE.Data), bias: at(o.Bias), norms: at(o.HeadNorms), rope: at(o.RoPE),
		slot: at(o.rows.Slot), position: at(o.rows.Position), table: at(o.slots.BlockTable), pool: at(o.kv.Data),
		t: int32(o.t), heads: int32(o.heads), kvHeads: int32(keys / o.kv.HeadDim), dim: int32(o.kv.HeadDim), eps: o.Eps,
		layer: int32(layer), layers: int32(layers), pages: int32(o.slots.Pages),
		pageTokens: int32(o.kv.PageTokens), kvType: int32(o.kv.DType),
		valueNorms: flag(o.ValueNorms)}
}
