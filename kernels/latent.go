package kernels

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels/device"
)

// LatentQKV prepares multi-head latent attention in one layer: n = rmsnorm(X[t]), q = Wq·n, c = Wc·n. The latent and
// the key's part that RoPE rotates go to the row's page, one row for all heads:
//
//	[rmsnorm(c[0 … Latent)), rope(c[Latent … Latent+Rope))]
//
// Of each head's q the last Rope elements are rotated and go behind the Latent elements that [HeadProduct] makes of the
// others: q_nope·k_nope is (Wuk^T·q_nope)·latent, so attention needs no keys of heads. RoPE pairs element i with
// i+Rope/2, as in [QKPost]; DeepSeek's checkpoints pair neighbours, so a loader reorders these rows of Q and C.
// With QueryDown queries have a latent of their own: q = Wq·rmsnorm(QueryDown·n).
// (DeepSeek-V2, 2024, section 2.1 and appendix C.)
type LatentQKV struct {
	X          device.Buffer // float32 [T][Hidden]
	Norm       device.Buffer // float32 [Hidden]
	QueryDown  Weight        // [query latent][Hidden], or none
	QueryNorm  device.Buffer // float32 [query latent], or none
	Q          Weight        // [Heads*(Nope+Rope)][Hidden, or query latent]
	C          Weight        // [Latent+Rope][Hidden], with Latent = KV.Values and Latent+Rope = KV.HeadDim
	LatentNorm device.Buffer // float32 [Latent]
	RoPE       device.Buffer // float32 [context][Rope/2][cos, sin]
	Rows       Rows
	Slots      Slots
	KV         KV // with Values and one head
	// Products is out: float32 [T][Heads*(Nope+Rope)], which is q, then [T][Latent+Rope], which is c, then [T][query
	// latent].
	Products device.Buffer
	Out      device.Buffer // out: float32 [T][Heads][Latent+Rope], of which only the last Rope of a head are written
	// Identity is float32 [16][1, 0], a rotation by 0, Zero int32 [T] of 0, and Index int32 [T] of 0, 1, 2, …: a GPU's
	// product is one that rotates, and stores keys and values in pages.
	Identity, Zero, Index device.Buffer
	Workspace             Workspace
	Handover              Handover // of the prefill class; Rounded is none

	T, Layer, Hidden, Heads, Nope int
	Eps, LatentEps                float32 // of Norm, of LatentNorm and QueryNorm
	Class                         Class
}

// Kernel returns "latentqkv".
func (LatentQKV) Kernel() string { return "latentqkv" }

// rope returns the elements that RoPE rotates.
func (o LatentQKV) rope() int { return o.KV.HeadDim - o.KV.Values }

// Check compares dimensions.
func (o LatentQKV) Check() error {
	if o.KV.Values < 1 || o.KV.Heads != 1 || o.rope() < 2 || o.rope()%2 != 0 || o.Nope < 1 {
		return fmt.Errorf("%w: latent attention over %d heads of %d elements, %d of them values, and queries of %d",
			device.ErrBadShape, o.KV.Heads, o.KV.HeadDim, o.KV.Values, o.Nope)
	}
	q, in := o.Heads*(o.Nope+o.rope()), o.Hidden
	var err error
	if down := o.QueryDown; down.Rows > 0 {
		in, err = down.Rows, errors.Join(down.check("of the query's latent", down.Rows, o.Hidden),
			checkBuffers(need{"query norm", o.QueryNorm, down.Rows}))
	}
	return errors.Join(err, o.KV.check(o.Layer), o.Q.check("q", q, in), o.C.check("c", o.KV.HeadDim, o.Hidden),
		checkBuffers(need{"x", o.X, o.T * o.Hidden}, need{"norm", o.Norm, o.Hidden},
			need{"latent norm", o.LatentNorm, o.KV.Values}, need{"rope", o.RoPE, o.Slots.Context * o.rope()},
			need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T},
			need{"block table", o.Slots.BlockTable, o.Slots.Count * o.Slots.Pages},
			need{"products", o.Products, o.T * (q + o.KV.HeadDim + o.QueryDown.Rows)},
			need{"q out", o.Out, o.T * o.Heads * o.KV.HeadDim}))
}

// Host computes on the host.
func (o LatentQKV) Host(h *device.Host) {
	n := normRows(h, h.Float32(o.X), h.Float32(o.Norm)[:o.Hidden], o.Eps, o.T)
	q := h.Float32(o.Products)[:o.T*o.Q.Rows]
	c := h.Float32(o.Products)[len(q):][:o.T*o.C.Rows]
	product(h, o.C, n, o.T, c, o.C.Rows, false)
	if rank := o.QueryDown.Rows; rank > 0 {
		down := h.Float32(o.Products)[len(q)+len(c):][:o.T*rank]
		product(h, o.QueryDown, n, o.T, down, rank, false)
		h.Return(n)
		n = normRows(h, down, h.Float32(o.QueryNorm)[:rank], o.LatentEps, o.T)
	}
	product(h, o.Q, n, o.T, q, o.Q.Rows, false)
	h.Return(n)
	for t := range o.T {
		o.row(h, t, q[t*o.Q.Rows:][:o.Q.Rows], c[t*o.C.Rows:][:o.C.Rows])
	}
}

// row stores row t of c, and rotates the ends of q's heads.
func (o LatentQKV) row(h *device.Host, t int, q, c []float32) {
	latent, d, rope := o.KV.Values, o.KV.HeadDim, o.rope()
	slot, position := int(h.Int32(o.Rows.Slot)[t]), int(h.Int32(o.Rows.Position)[t])
	rotation := h.Float32(o.RoPE)[position*rope:][:rope]
	page := int(h.Int32(o.Slots.BlockTable)[slot*o.Slots.Pages+position/o.KV.PageTokens])
	stored := h.Float32(o.KV.Data)[o.KV.at(page, o.Layer, 0, 0)+position%o.KV.PageTokens*d:][:d]
	rmsNorm(stored[:latent], c[:latent], h.Float32(o.LatentNorm)[:latent], o.LatentEps)
	copy(stored[latent:], c[latent:])
	rotateHeads(stored[latent:], rotation)
	for head := range o.Heads {
		out := h.Float32(o.Out)[(t*o.Heads+head)*d+latent:][:rope]
		copy(out, q[head*(o.Nope+rope)+o.Nope:])
		rotateHeads(out, rotation)
	}
}

// HeadProduct multiplies a part of each head by a matrix of its own: with In and Out as rows of heads of InStride and
// OutStride elements, Out[t][head][0 … R) = W_head·In[t][head][0 … C). Latent attention has two: from a query to
// the latent, and from the sum of latents to a value. In a checkpoint both are parts of kv_b_proj, which is
// [Heads][Nope of a key, then a value's][Latent]; a loader transposes the first by head.
type HeadProduct struct {
	W   Weight        // [Heads*R][C]: the matrices of all heads
	In  device.Buffer // float32 [T][Heads][InStride]
	Out device.Buffer // out: float32 [T][Heads][OutStride]; of each head the first R are written

	T, Heads, InStride, OutStride int
	Class                         Class
}

// Kernel returns "headproduct".
func (HeadProduct) Kernel() string { return "headproduct" }

// Check compares dimensions.
func (o HeadProduct) Check() error {
	if o.Heads < 1 || o.W.Rows%o.Heads != 0 || o.W.Rows/o.Heads > o.OutStride || o.W.Cols > o.InStride {
		return fmt.Errorf("%w: [%d][%d] for %d heads, from %d elements to %d", device.ErrBadShape, o.W.Rows, o.W.Cols,
			o.Heads, o.InStride, o.OutStride)
	}
	return errors.Join(o.W.check("of heads", o.W.Rows, o.W.Cols), checkBuffers(
		need{"in", o.In, o.T * o.Heads * o.InStride}, need{"out", o.Out, o.T * o.Heads * o.OutStride}))
}

// Host computes on the host.
func (o HeadProduct) Host(h *device.Host) {
	rows, cols := o.W.Rows/o.Heads, o.W.Cols
	in, out := h.Float32(o.In), h.Float32(o.Out)
	x := h.Scratch(o.T * cols)
	for head := range o.Heads {
		for t := range o.T {
			copy(x[t*cols:][:cols], in[(t*o.Heads+head)*o.InStride:])
		}
		product(h, o.W.rowsOf(head*rows, rows), x, o.T, out[head*o.OutStride:], o.Heads*o.OutStride, false)
	}
	h.Return(x)
}

// rowsOf returns n rows of a row-major weight, from one on.
func (w Weight) rowsOf(from, n int) Weight {
	each := w.DType.Bytes(int64(w.Cols))
	w.Data, w.Rows = w.Data.Slice(int64(from)*each, int64(n)*each), n
	return w
}
