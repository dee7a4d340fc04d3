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
	headProductRows   = 64           // of a block of many rows
	headProductParts  = 4            // of a weight's columns
	headProductMost   = 48           // rows of the kernel of few rows
	headProductTokens = 8            // rows of a warp
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

// products launches the products of q and c, and before that of q that of its latent. c goes with the other product of
// the same rows where one kernel reads both: its rows are too few for all SMs.
func (o LatentQKV) products(q *cuda.Queue) error {
	toC, toDown := o.T*o.Q.Rows, o.T*(o.Q.Rows+o.C.Rows)
	in := activations{x: q.Address(o.X), norm: q.Address(o.Norm), cols: int32(o.Hidden), n: int32(o.T), eps: o.Eps}
	w, to := o.Q, 0
	if o.QueryDown.Rows > 0 {
		w, to = o.QueryDown, toDown
	}
	c := o.C
	if !o.joins(w) {
		if err := o.product(q, c, Weight{}, in, o.Handover, toC); err != nil {
			return err
		}
		c = Weight{}
	}
	if err := o.product(q, w, c, in, o.Handover, to); err != nil || o.QueryDown.Rows == 0 {
		return err
	}
	in.x, in.norm = q.Address(o.Products)+uint64(4*toDown), q.Address(o.QueryNorm)
	in.cols, in.eps = int32(o.QueryDown.Rows), o.LatentEps
	return o.product(q, o.Q, Weight{}, in, Handover{}, 0)
}

// joins reports whether one kernel multiplies by w and by C, whose rows it takes for keys and values.
func (o LatentQKV) joins(w Weight) bool {
	return w.DType == o.C.DType && w.Layout == Fragments && o.C.Layout == Fragments && o.C.Rows%(2*latentProductHead) == 0
}

// product launches the product of normed rows by w, whose results begin at an element of Products, and by c if it is
// not none.
func (o LatentQKV) product(q *cuda.Queue, w, c Weight, in activations, h Handover, to int) error {
	zero, index, units := q.Address(o.Zero), q.Address(o.Index), w.Rows/latentProductHead
	p := productLaunch{name: "reel_qkv", in: in, units: units, tiles: 2, persistent: persistent{2, 1}, class: o.Class,
		workspace: o.Workspace, handover: h, weights: []Weight{w}, unitsOf: []int{units}}
	args := qkvArgs{q: q.Address(w.Data), rope: q.Address(o.Identity), slot: index, position: zero, table: index,
		in: in, pool: zero, out: q.Address(o.Products) + uint64(4*to), heads: int32(units), dim: latentProductHead,
		kvType: int32(F32), pages: 1, layers: 1, pageTokens: 1}
	if c.Rows > 0 {
		half := c.Rows / 2
		k, v := c.rowsOf(0, half), c.rowsOf(half, half)
		args.k, args.v, args.kvHeads = q.Address(k.Data), q.Address(v.Data), int32(half/latentProductHead)
		args.pool = q.Address(o.Products) + uint64(4*o.T*o.Q.Rows)
		p.units += c.Rows / latentProductHead
		p.weights, p.unitsOf = append(p.weights, k, v), append(p.unitsOf, half/latentProductHead, half/latentProductHead)
	}
	return launch(q, p, args)
}

// checkCUDA refuses dimensions that the kernels do not support.
func (o LatentQKV) checkCUDA() error {
	for _, w := range []Weight{o.Q, o.C, o.QueryDown} {
		if o.KV.DType != BF16 || w.Rows%latentProductHead != 0 {
			return fmt.Errorf("%w: products of latent attention on a GPU of %d rows, wants multiples of %d",
				device.ErrBadShape, w.Rows, latentProductHead)
		}
	}
	return checkBuffers(need{"identity", o.Identity, latentProductHead}, need{"zeros", o.Zero, o.T},
		need{"index", o.Index, o.T})
}

// CUDA launches a warp for each 16 results of 8 rows, or of 64 if there are many.
func (o HeadProduct) CUDA(q *cuda.Queue) error {
	rows := o.W.Rows / o.Heads
	if o.W.Layout != Fragments || rows%tileRows != 0 || o.W.Cols%tileCols != 0 || o.InStride%4 != 0 {
		return fmt.Errorf("%w: products of heads on a GPU of [%d][%d] in layout %d, from %d elements",
			device.ErrBadShape, rows, o.W.Cols, o.W.Layout, o.InStride)
	}
	name, g := "reel_headproduct_bf16", o.grid(rows)
	if o.W.DType == F16 {
		name = "reel_headproduct_f16"
	}
	if o.many(rows) {
		name += "_many"
	}
	return cuda.Launch(q, name, g, headProductArgs{w: q.Address(o.W.Data), in: q.Address(o.In), out: q.Address(o.Out),
		t: int32(o.T), heads: int32(o.Heads), rows: int32(rows), cols: int32(o.W.Cols), inStride: int32(o.InStride),
		outStride: int32(o.OutStride)})
}

// many reports whether the kernel of many rows takes a weight of so many rows a head. It has the bits of the other one.
func (o HeadProduct) many(rows int) bool {
	return o.T > headProductMost && rows%(headProductWarps*tileRows) == 0 &&
		o.W.Cols%(headProductParts*tileCols) == 0
}

// grid returns the grid of the kernel for T rows. Few rows have blocks of one warp, for as many SMs as possible.
func (o HeadProduct) grid(rows int) cuda.Grid {
	warps, each := 1, headProductTokens
	if o.many(rows) {
		warps, each = headProductWarps, headProductRows
	}
	return cuda.Grid{X: splitsOf(o.W.Rows/tileRows, warps), Y: splitsOf(o.T, each), Threads: 32 * warps, Dependent: true}
}
