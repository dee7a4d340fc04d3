package kernels

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels/device"
)

// QKV prepares attention in one layer: n = rmsnorm(X[t]), q = Wq·n, k = Wk·n, v = Wv·n, then
// QK post-processing ([QKPost]).
type QKV struct {
	X       device.Buffer // float32 [T][hidden]
	Norm    device.Buffer // float32 [hidden]
	Q, K, V Weight        // [heads*HeadDim][hidden], [KV.Heads*HeadDim][hidden] twice; K and V none: see QueriesOnly
	Bias    device.Buffer // float32 [heads*HeadDim of q, KV.Heads*HeadDim of k, the same of v], or none
	// HeadNorms is float32 [q's, k's, with ValueNorms v's][HeadDim], or none: rmsnorm with HeadEps over a head.
	HeadNorms  device.Buffer
	ValueNorms bool
	// QueriesOnly: only q is computed, for a layer that uses the keys and values of an earlier one.
	QueriesOnly bool
	// WidthNorms is float32 [heads*HeadDim of q, KV.Heads*HeadDim of k], or none: rmsnorm with HeadEps over all heads of q,
	// and over those of k. It is for models without Bias and HeadNorms.
	WidthNorms device.Buffer
	RoPE       device.Buffer // float32 [context][HeadDim/2][cos, sin]
	Rows       Rows
	Slots      Slots
	KV         KV
	Out        device.Buffer // out: float32 [T][heads*HeadDim]: q
	BeforeRoPE KVBeforeRoPE  // with biases or norms of q and k: a GPU needs it for them, and DeferRoPE
	Workspace  Workspace
	Handover   Handover // Rounded is none

	T, Layer, Hidden, Heads int
	Eps                     float32
	HeadEps                 float32 // of HeadNorms and WidthNorms; 0: Eps
	Class                   Class
	Generated               Generated // rows of a mixed pass, see [Generated]
	// DeferRoPE leaves QK post-processing to the Attend after this op: Out and BeforeRoPE get
	// q, k and v as the products compute them, and WidthNorms. It is for the decode class of models
	// with biases or norms of q and k. In other models a GPU's product applies RoPE itself.
	DeferRoPE bool
	// Tags are those of a pass whose values are tagged; results are then those of DeferRoPE, float32 [q, k, v], and the
	// Attend after this op has TagsPost.
	Tags Tags
}

// Kernel returns "qkv".
func (QKV) Kernel() string { return "qkv" }

// Check compares dimensions.
func (o QKV) Check() error {
	d := o.KV.HeadDim
	for _, w := range []struct {
		name string
		w    Weight
		rows int
	}{{"q", o.Q, o.Heads * d}, {"k", o.K, o.KV.Heads * d}, {"v", o.V, o.KV.Heads * d}} {
		if o.QueriesOnly && w.name != "q" {
			continue
		}
		if err := w.w.check(w.name, w.rows, o.Hidden); err != nil {
			return err
		}
	}
	if !o.WidthNorms.IsZero() && (!o.Bias.IsZero() || !o.HeadNorms.IsZero()) {
		return fmt.Errorf("%w: norms over all heads beside biases or norms of a head", device.ErrBadShape)
	}
	return errors.Join(o.KV.check(o.Layer), o.Generated.check(o.Class, o.T), o.post().check(), o.checkDeferred(),
		o.Tags.check(o.T, o.Hidden, (o.Heads+2*o.KV.Heads)*d, o.Q, o.K, o.V),
		checkOptional(need{"norms over all heads", o.WidthNorms, (o.Heads + o.KV.Heads) * d}),
		checkBuffers(need{"x", o.X, o.T * o.Hidden}, need{"norm", o.Norm, o.Hidden},
			need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T},
			need{"q out", o.Out, o.T * o.Heads * d}))
}

func (o QKV) checkDeferred() error {
	if !o.DeferRoPE {
		return nil
	}
	if o.Class == Prefill || !o.hasPost() {
		return fmt.Errorf("%w: deferred RoPE is for the decode class of models with biases or norms of q and k",
			device.ErrBadShape)
	}
	return o.BeforeRoPE.check(o.T, o.KV.Heads, o.KV.HeadDim)
}

// Post returns the QK post-processing that the next Attend does if this op has DeferRoPE, or Tags.
func (o QKV) Post() QKPost {
	return QKPost{Bias: o.Bias, HeadNorms: o.HeadNorms, ValueNorms: o.ValueNorms, RoPE: o.RoPE,
		BeforeRoPE: o.BeforeRoPE, Eps: o.headEps(), QueriesOnly: o.QueriesOnly}
}

func (o QKV) headEps() float32 {
	if o.HeadEps == 0 {
		return o.Eps
	}
	return o.HeadEps
}

func (o QKV) post() rowsPost {
	return rowsPost{QKPost: o.Post(), rows: o.Rows, slots: o.Slots, kv: o.KV, t: o.T, layer: o.Layer, heads: o.Heads}
}

// hasPost reports whether a GPU's product cannot apply RoPE itself: biases come before it, and
// a norm needs the whole head, or all.
func (o QKV) hasPost() bool {
	return !o.Bias.IsZero() || !o.HeadNorms.IsZero() || !o.WidthNorms.IsZero()
}

// Host computes on the host.
func (o QKV) Host(h *device.Host) {
	q, kn := h.Float32(o.Out), o.K.Rows
	n := normRows(h, h.Float32(o.X), h.Float32(o.Norm)[:o.Hidden], o.Eps, o.T)
	kv := h.Scratch(o.T * 2 * kn)
	if o.QueriesOnly {
		product(h, o.Q, n, o.T, q, o.Q.Rows, false)
	} else {
		products(h, n, o.T, target{o.Q, sums{q, o.Q.Rows, false}}, target{o.K, sums{kv, 2 * kn, false}},
			target{o.V, sums{kv[kn:], 2 * kn, false}})
	}
	o.normWidths(h, q, kv)
	if o.DeferRoPE {
		copy(h.Float32(o.BeforeRoPE.Data), kv)
	} else {
		o.post().host(h, q, kv)
	}
	h.Return(kv)
	h.Return(n)
}

// normWidths applies WidthNorms, if there are any, in place: q is [T][heads*HeadDim], kv [T][k then v].
// (OLMo et al., "2 OLMo 2 Furious", 2025.)
func (o QKV) normWidths(h *device.Host, q, kv []float32) {
	if o.WidthNorms.IsZero() {
		return
	}
	norms, qn, kn := h.Float32(o.WidthNorms), o.Q.Rows, o.K.Rows
	for t := range o.T {
		rowQ, rowK := q[t*qn:(t+1)*qn], kv[t*2*kn:t*2*kn+kn]
		rmsNorm(rowQ, rowQ, norms[:qn], o.headEps())
		rmsNorm(rowK, rowK, norms[qn:qn+kn], o.headEps())
	}
}
