package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// QKPost is QK post-processing, between the products q, k and v of a layer and its attention:
// biases are added, if there are any; each head of q and k is normed, if there are head norms;
// RoPE rotates q and k by the row's position; and k and v are stored in the sequence's page.
//
// RoPE pairs element i with element i+HeadDim/2 of a head, the order of Hugging Face
// checkpoints. (Su et al., "RoFormer", 2021.)
type QKPost struct {
	Bias       device.Buffer // float32 [heads*HeadDim of q, KV.Heads*HeadDim of k, the same of v], or none
	HeadNorms  device.Buffer // float32 [q's, k's, with ValueNorms v's][HeadDim], or none: rmsnorm with Eps over a head
	RoPE       device.Buffer // float32 [context][HeadDim/2][cos, sin]
	BeforeRoPE KVBeforeRoPE  // k and v of the products
	Eps        float32
	ValueNorms bool // heads of v are normed too, which is for models with HeadNorms
	// QueriesOnly: the layer has no keys and values of its own, but uses those of an earlier one. K and v are then neither
	// read nor stored.
	QueriesOnly bool
}

// IsZero reports whether there is no post-processing to do.
func (o QKPost) IsZero() bool { return o.RoPE.IsZero() }

// rowsPost is QK post-processing of a step's rows.
type rowsPost struct {
	QKPost
	rows            Rows
	slots           Slots
	kv              KV
	t, layer, heads int
}

// check compares dimensions.
func (o rowsPost) check() error {
	d := o.kv.HeadDim
	if o.ValueNorms && o.HeadNorms.IsZero() || o.QueriesOnly && !o.Bias.IsZero() {
		return fmt.Errorf("%w: norms of values without those of heads, or biases of queries alone", device.ErrBadShape)
	}
	norms := 2
	switch {
	case o.QueriesOnly:
		norms = 1
	case o.ValueNorms:
		norms = 3
	}
	for _, b := range []need{{"bias", o.Bias, (o.heads + 2*o.kv.Heads) * d}, {"head norms", o.HeadNorms, norms * d}} {
		if !b.buf.IsZero() {
			if err := checkBuffers(b); err != nil {
				return err
			}
		}
	}
	return checkBuffers(need{"rope", o.RoPE, o.slots.Context * d})
}

// postCost is the cost of an element in multiply-adds.
const postCost = 8

// host computes on the host, in place: q is [T][heads*HeadDim], kv [T][k then v][KV heads*HeadDim].
func (o rowsPost) host(h *device.Host, q, kv []float32) {
	qn, kn := o.widths()
	h.For(o.t, o.t*(qn+2*kn)*postCost, func(begin, end int) {
		q, kv := q[begin*qn:end*qn], kv[begin*2*kn:end*2*kn]
		if !o.Bias.IsZero() {
			o.addBias(h.Float32(o.Bias), q, kv)
		}
		if !o.HeadNorms.IsZero() {
			o.normHeads(h.Float32(o.HeadNorms), q, kv)
		}
		o.appendRows(h, q, kv, begin)
	})
}

// widths returns the number of elements of q, and of k, in a row.
func (o rowsPost) widths() (q, k int) {
	if q = o.heads * o.kv.HeadDim; o.QueriesOnly {
		return q, 0
	}
	return q, o.kv.Heads * o.kv.HeadDim
}

// addBias adds the biases to q and kv, which are those of some rows.
func (o rowsPost) addBias(bias, q, kv []float32) {
	qn, kn := o.widths()
	for ; len(q) > 0; q, kv = q[qn:], kv[2*kn:] {
		for i, b := range bias[:qn] {
			q[i] += b
		}
		for i, b := range bias[qn : qn+2*kn] {
			kv[i] += b
		}
	}
}

// normHeads norms each head of q and k of some rows, and of v with ValueNorms.
// (Henry et al., "Query-Key Normalization for Transformers", 2020, with rmsnorm.)
func (o rowsPost) normHeads(norms, q, kv []float32) {
	qn, kn := o.widths()
	d := o.kv.HeadDim
	norm := func(x, g []float32) {
		for ; len(x) > 0; x = x[d:] {
			rmsNorm(x[:d], x[:d], g, o.Eps)
		}
	}
	for ; len(q) > 0; q, kv = q[qn:], kv[2*kn:] {
		norm(q[:qn], norms[:d])
		if o.QueriesOnly {
			continue
		}
		norm(kv[:kn], norms[d:2*d])
		if o.ValueNorms {
			norm(kv[kn:2*kn], norms[2*d:3*d])
		}
	}
}

// appendRows applies RoPE to q and k of rows from t on, and stores k and v in the pool.
func (o rowsPost) appendRows(h *device.Host, q, kv []float32, t int) {
	slots, positions, table := h.Int32(o.rows.Slot), h.Int32(o.rows.Position), h.Int32(o.slots.BlockTable)
	rope, pool := h.Float32(o.RoPE), h.Float32(o.kv.Data)
	qn, kn := o.widths()
	d := o.kv.HeadDim
	for ; len(q) > 0; q, kv, t = q[qn:], kv[2*kn:], t+1 {
		position := int(positions[t])
		rotation := rope[position*d : (position+1)*d]
		rotateHeads(q[:qn], rotation)
		rotateHeads(kv[:kn], rotation)
		if o.QueriesOnly {
			continue
		}
		page := int(table[int(slots[t])*o.slots.Pages+position/o.kv.PageTokens])
		within := position % o.kv.PageTokens * d
		for head := range o.kv.Heads {
			copy(pool[o.kv.at(page, o.layer, 0, head)+within:][:d], kv[head*d:])
			copy(pool[o.kv.at(page, o.layer, 1, head)+within:][:d], kv[kn+head*d:])
		}
	}
}

// rotateHeads applies RoPE to every head of x; rotation is [HeadDim/2][cos, sin].
func rotateHeads(x, rotation []float32) {
	for d := len(rotation); len(x) > 0; x = x[d:] {
		vec.Rotate(x[:d], rotation)
	}
}

// KVBeforeRoPE is memory for k and v of a step before biases, norms and RoPE. A GPU's product
// writes to it as to a KV pool with a page of one token for each row; Index, Zero and
// Identity are the slots, block table, positions and RoPE table of that pool.
type KVBeforeRoPE struct {
	Data     device.Buffer // float32 [rows][k, v][KV heads*HeadDim]
	Index    device.Buffer // int32 [rows]: 0, 1, 2, …
	Zero     device.Buffer // int32 [rows]: 0
	Identity device.Buffer // float32 [HeadDim/2][1, 0]: a rotation by 0
}

// AllocKVBeforeRoPE allocates memory for rows rows of keys of that width over all heads, which have at most headDim
// elements each. The caller frees it.
func AllocKVBeforeRoPE(m device.Memory, rows, width, headDim int) (r KVBeforeRoPE, err error) {
	identity := make([]float32, headDim)
	for i := 0; i < headDim; i += 2 {
		identity[i] = 1
	}
	if r.Data, err = m.Alloc(4 * int64(rows) * 2 * int64(width)); err != nil {
		return r, err
	}
	if r.Index, err = LoadIndex(m, rows); err != nil {
		return r, err
	}
	if r.Zero, err = m.Alloc(4 * int64(rows)); err != nil {
		return r, err
	}
	r.Identity, err = LoadVector(m, identity)
	return r, err
}

// check compares dimensions with those of rows rows.
func (r KVBeforeRoPE) check(rows, kvHeads, headDim int) error {
	return checkBuffers(need{"k and v before RoPE", r.Data, rows * 2 * kvHeads * headDim},
		need{"rows", r.Index, rows}, need{"zeros", r.Zero, rows},
		need{"identity rotation", r.Identity, headDim})
}
