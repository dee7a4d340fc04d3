//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// Constants of latent.cu.
const (
	latentThreads     = 128
	headProductWarps  = 4
	latentProductHead = 2 * tileRows // rows that a product takes for a head
)

// CUDA launches the products of q and c, with the kernels of [QKV], which take 32 rows for a head and rotate them by 0;
// then the kernel that norms, rotates and stores.
func (o LatentQKV) CUDA(q *cuda.Queue) error {
	if err := o.checkCUDA(); err != nil {
		return err
	}
	if err := o.products(q); err != nil {
		return err
	}
	at, products := q.Address, q.Address(o.Products)
	return cuda.Launch(q, "reel_latent", cuda.Grid{X: o.T, Y: 1 + o.Heads, Threads: latentThreads, Dependent: true},
		latentArgs{q: products, c: products + uint64(4*o.T*o.Q.Rows), norm: at(o.LatentNorm), table: at(o.RoPE),
			slot: at(o.Rows.Slot), position: at(o.Rows.Position), blockTable: at(o.Slots.BlockTable), pool: at(o.KV.Data),
			out: at(o.Out), pageBytes: o.KV.PageBytes(), layerStart: o.KV.LayerStart(o.Layer), heads: int32(o.Heads),
			nope: int32(o.Nope), rope: int32(o.rope()), latent: int32(o.KV.Values), pages: int32(o.Slots.Pages),
			pageTokens: int32(o.KV.PageTokens), eps: o.LatentEps})
}

// products launches the products of q and c, and before that of q that of its latent.
func (o LatentQKV) products(q *cuda.Queue) error {
	toC, toDown := o.T*o.Q.Rows, o.T*(o.Q.Rows+o.C.Rows)
	in := activations{x: q.Address(o.X), norm: q.Address(o.Norm), cols: int32(o.Hidden), n: int32(o.T), eps: o.Eps}
	if err := o.product(q, o.C, in, o.Handover, toC); err != nil {
		return err
	}
	if o.QueryDown.Rows == 0 {
		return o.product(q, o.Q, in, o.Handover, 0)
	}
	if err := o.product(q, o.QueryDown, in, o.Handover, toDown); err != nil {
		return err
	}
	in.x, in.norm = q.Address(o.Products)+uint64(4*toDown), q.Address(o.QueryNorm)
	in.cols, in.eps = int32(o.QueryDown.Rows), o.LatentEps
	return o.product(q, o.Q, in, Handover{}, 0)
}

// product launches the product of normed rows by w. Its results begin at an element of Products.
func (o LatentQKV) product(q *cuda.Queue, w Weight, in activations, h Handover, to int) error {
	zero, units := q.Address(o.Zero), w.Rows/latentProductHead
	args := qkvArgs{q: q.Address(w.Data), rope: q.Address(o.Identity), slot: zero, position: zero, table: zero,
		in:   in,
		pool: zero, out: q.Address(o.Products) + uint64(4*to), heads: int32(units), dim: latentProductHead,
		kvType: int32(F32), pages: 1, layers: 1, pageTokens: 1}
	return launch(q, productLaunch{name: "reel_qkv", in: args.in, units: units, tiles: 2, persistent: persistent{2, 1},
		class: o.Class, workspace: o.Workspace, handover: h, weights: []Weight{w}, unitsOf: []int{units}}, args)
}

// checkCUDA refuses dimensions that the kernels do not support.
func (o LatentQKV) checkCUDA() error {
	for _, w := range []Weight{o.Q, o.C, o.QueryDown} {
		if o.KV.DType != BF16 || w.Rows%latentProductHead != 0 {
			return fmt.Errorf("%w: products of latent attention on a GPU of %d rows, wants multiples of %d",
				device.ErrBadShape, w.Rows, latentProductHead)
		}
	}
	return checkBuffers(need{"identity", o.Identity, latentProductHead}, need{"zeros", o.Zero, o.T})
}

// CUDA launches a warp for each 16 results of 8 rows.
func (o HeadProduct) CUDA(q *cuda.Queue) error {
	rows := o.W.Rows / o.Heads
	if o.W.Layout != Fragments || rows%tileRows != 0 || o.W.Cols%tileCols != 0 || o.InStride%4 != 0 {
		return fmt.Errorf("%w: products of heads on a GPU of [%d][%d] in layout %d, from %d elements",
			device.ErrBadShape, rows, o.W.Cols, o.W.Layout, o.InStride)
	}
	name := "reel_headproduct_bf16"
	if o.W.DType == F16 {
		name = "reel_headproduct_f16"
	}
	return cuda.Launch(q, name, cuda.Grid{X: splitsOf(o.W.Rows/tileRows, headProductWarps), Y: splitsOf(o.T, 8),
		Threads: 32 * headProductWarps, Dependent: true},
		headProductArgs{w: q.Address(o.W.Data), in: q.Address(o.In), out: q.Address(o.Out), t: int32(o.T),
			heads: int32(o.Heads), rows: int32(rows), cols: int32(o.W.Cols), inStride: int32(o.InStride),
			outStride: int32(o.OutStride)})
}
