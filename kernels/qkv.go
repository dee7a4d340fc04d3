package kernels

import (
	"unsafe"

	"reel/kernels/device"
)

// QKV prepares attention for one layer: n = rmsnorm(X[t]), q = Wq·n, k = Wk·n,
// v = Wv·n, RoPE turns q and k by the row's position, k and v are appended to
// the sequence's page. Where the op has biases they are added to the products;
// where it has head norms each head of q and k is normed before it is turned.
//
// RoPE pairs element i with element i+HeadDim/2 of a head, as Hugging Face
// checkpoints are laid out (Su et al., "RoFormer", 2021).
type QKV struct {
	X       device.Buffer // float32 [T][hidden]
	Norm    device.Buffer // float32 [hidden]
	Q, K, V Weight        // [heads*HeadDim][hidden], [KV.Heads*HeadDim][hidden] twice
	Bias    device.Buffer // float32 [heads*HeadDim of q, KV.Heads*HeadDim of k, the same of v], or none
	// HeadNorms are float32 [q's, k's][HeadDim], or none: rmsnorm with Eps over a head.
	HeadNorms device.Buffer
	RoPE      device.Buffer // float32 [context][HeadDim/2][cos, sin]
	Rows      Rows
	Slots     Slots
	KV        KV
	Out       device.Buffer // out: float32 [T][heads*HeadDim], the turned q
	Raw       RawKV         // where there are biases or head norms: what a GPU needs for them; the host needs none
	Scratch   device.Buffer // ScratchBytes, or none: what some GPUs round activations to
	Parts     device.Buffer // PartBytes, or none: where the blocks of some GPUs leave each other parts of a prompt's sums

	T, Layer, Hidden, Heads int
	Eps                     float32
	// Prefill tells that the rows are a prompt's. A prompt's rows and generated ones each
	// have results that do not depend on company; the two may differ in rounding.
	Prefill bool
	// Ready tells that the op before left the rows in Scratch, as its Next.
	Ready bool
}

// Kernel is "qkv".
func (QKV) Kernel() string { return "qkv" }

// Check compares dimensions.
func (o QKV) Check() error {
	d := o.KV.HeadDim
	for _, w := range []struct {
		name string
		w    Weight
		rows int
	}{{"q", o.Q, o.Heads * d}, {"k", o.K, o.KV.Heads * d}, {"v", o.V, o.KV.Heads * d}} {
		if err := w.w.check(w.name, w.rows, o.Hidden); err != nil {
			return err
		}
	}
	if err := o.KV.check(o.Layer); err != nil {
		return err
	}
	for _, b := range []need{{"bias", o.Bias, (o.Heads + 2*o.KV.Heads) * d}, {"head norms", o.HeadNorms, 2 * d}} {
		if !b.buf.IsZero() {
			if err := checkBuffers(b); err != nil {
				return err
			}
		}
	}
	return checkBuffers(need{"x", o.X, o.T * o.Hidden}, need{"norm", o.Norm, o.Hidden}, need{"rope", o.RoPE, o.Slots.Context * d},
		need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T}, need{"q out", o.Out, o.T * o.Heads * d})
}

// Host computes on the host.
func (o QKV) Host(h *device.Host) {
	qn, kn := o.Q.Rows, o.K.Rows
	n := normRows(h, h.Float32(o.X), h.Float32(o.Norm)[:o.Hidden], o.Eps, o.T)
	kv := h.Scratch(o.T * 2 * kn)
	product(h, o.Q, n, o.T, h.Float32(o.Out), qn, false)
	product(h, o.K, n, o.T, kv, 2*kn, false)
	product(h, o.V, n, o.T, kv[kn:], 2*kn, false)
	if !o.Bias.IsZero() {
		o.addBias(h.Float32(o.Bias), h.Float32(o.Out), kv)
	}
	if !o.HeadNorms.IsZero() {
		o.normHeads(h.Float32(o.HeadNorms), h.Float32(o.Out), kv)
	}
	o.appendRows(h, kv)
	h.Return(kv)
	h.Return(n)
}

// addBias adds what is bias's to q [T][heads*HeadDim] and kv [T][k then v].
func (o QKV) addBias(bias, q, kv []float32) {
	qn, kn := o.Q.Rows, o.K.Rows
	for t := range o.T {
		for i, b := range bias[:qn] {
			q[t*qn+i] += b
		}
		for i, b := range bias[qn : qn+2*kn] {
			kv[t*2*kn+i] += b
		}
	}
}

// normHeads norms each head of q and k; norms is [q's, k's][HeadDim].
// (Henry et al., "Query-Key Normalization for Transformers", 2020, with rmsnorm.)
func (o QKV) normHeads(norms, q, kv []float32) {
	qn, kn, d := o.Q.Rows, o.K.Rows, o.KV.HeadDim
	norm := func(x, g []float32) {
		for ; len(x) > 0; x = x[d:] {
			rmsNorm(x[:d], x[:d], g, o.Eps)
		}
	}
	for t := range o.T {
		norm(q[t*qn:(t+1)*qn], norms[:d])
		norm(kv[t*2*kn:t*2*kn+kn], norms[d:2*d])
	}
}

// appendRows turns q and k and stores k and v; kv is [T][k then v][KV heads*HeadDim].
func (o QKV) appendRows(h *device.Host, kv []float32) {
	slots, positions, table := h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position), h.Int32(o.Slots.BlockTable)
	q, rope, pool := h.Float32(o.Out), h.Float32(o.RoPE), h.Float32(o.KV.Data)
	qn, kn, d := o.Q.Rows, o.K.Rows, o.KV.HeadDim
	for t := range o.T {
		position := int(positions[t])
		turns := rope[position*d : (position+1)*d]
		turnHeads(q[t*qn:(t+1)*qn], turns)
		k := kv[t*2*kn : (t+1)*2*kn]
		turnHeads(k[:kn], turns)
		page := int(table[int(slots[t])*o.Slots.Pages+position/o.KV.PageTokens])
		within := position % o.KV.PageTokens * d
		for head := range o.KV.Heads {
			copy(pool[o.KV.at(page, o.Layer, 0, head)+within:][:d], k[head*d:])
			copy(pool[o.KV.at(page, o.Layer, 1, head)+within:][:d], k[kn+head*d:])
		}
	}
}

// turnHeads applies RoPE to every head of x; turns is [HeadDim/2][cos, sin].
func turnHeads(x, turns []float32) {
	d := len(turns)
	for ; len(x) > 0; x = x[d:] {
		for i := range d / 2 {
			cos, sin := turns[2*i], turns[2*i+1]
			a, b := x[i], x[i+d/2]
			x[i] = float32(a*cos) - float32(b*sin)
			x[i+d/2] = float32(b*cos) + float32(a*sin)
		}
	}
}

// RawKV is where a GPU has k and v of a step before biases, norms and RoPE: the product
// writes them there as to a pool of its own, a page of one token for each row.
type RawKV struct {
	Data  device.Buffer // float32 [rows][k, v][KV heads*HeadDim]
	Index device.Buffer // int32 [rows]: 0, 1, 2, …: slots, and their pages
	Zero  device.Buffer // int32 [rows]: positions
	Still device.Buffer // float32 [HeadDim/2][1, 0]: RoPE that turns nothing
}

// AllocRawKV takes the memory of rows rows.
func AllocRawKV(m device.Memory, rows, kvHeads, headDim int) (r RawKV, err error) {
	index, still := make([]int32, rows), make([]float32, headDim)
	for i := range index {
		index[i] = int32(i)
	}
	for i := 0; i < headDim; i += 2 {
		still[i] = 1
	}
	if r.Data, err = m.Alloc(4 * int64(rows) * 2 * int64(kvHeads*headDim)); err != nil {
		return r, err
	}
	if r.Index, err = m.Load(unsafe.Slice((*byte)(unsafe.Pointer(&index[0])), 4*rows)); err != nil {
		return r, err
	}
	if r.Zero, err = m.Alloc(4 * int64(rows)); err != nil {
		return r, err
	}
	r.Still, err = LoadVector(m, still)
	return r, err
}
