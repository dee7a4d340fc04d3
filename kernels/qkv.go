package kernels

import (
	"fmt"

	"reel/kernels/device"
)

// QKV prepares attention for one layer: n = rmsnorm(X[t]), q = Wq·n, k = Wk·n,
// v = Wv·n, and then Turn.
type QKV struct {
	X       device.Buffer // float32 [T][hidden]
	Norm    device.Buffer // float32 [hidden]
	Q, K, V Weight        // [heads*HeadDim][hidden], [KV.Heads*HeadDim][hidden] twice
	Bias    device.Buffer // float32 [heads*HeadDim of q, KV.Heads*HeadDim of k, the same of v], or none
	// HeadNorms are float32 [q's, k's][HeadDim], or none: rmsnorm with Eps over a head.
	HeadNorms  device.Buffer
	RoPE       device.Buffer // float32 [context][HeadDim/2][cos, sin]
	Rows       Rows
	Slots      Slots
	KV         KV
	Out        device.Buffer // out: float32 [T][heads*HeadDim], the turned q
	BeforeRoPE KVBeforeRoPE  // where there are biases or head norms: what a GPU needs for them, and Unturned
	Workspace  Workspace
	Handover   Handover // of the prefill class; Rounded is none

	T, Layer, Hidden, Heads int
	Eps                     float32
	Class                   Class
	// Unturned leaves q in Out, and k and v in Raw, as the products have them: the Attend after
	// this op has its Turn. It is for generated rows, of families that have biases or head
	// norms: where there are none, a GPU's product turns what it computes.
	DeferRoPE bool
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
	if err := o.post().check(); err != nil {
		return err
	}
	if o.DeferRoPE {
		if o.Class == Prefill || !o.hasPost() {
			return fmt.Errorf("%w: unturned are generated rows with biases or head norms", device.ErrBadShape)
		}
		if err := o.BeforeRoPE.check(o.T, o.KV.Heads, d); err != nil {
			return err
		}
	}
	return checkBuffers(need{"x", o.X, o.T * o.Hidden}, need{"norm", o.Norm, o.Hidden},
		need{"slots of rows", o.Rows.Slot, o.T}, need{"positions", o.Rows.Position, o.T}, need{"q out", o.Out, o.T * o.Heads * d})
}

// Turn is what the Attend after this op does where it leaves its rows Unturned.
func (o QKV) Post() QKPost {
	return QKPost{Bias: o.Bias, HeadNorms: o.HeadNorms, RoPE: o.RoPE, BeforeRoPE: o.BeforeRoPE, Eps: o.Eps}
}

func (o QKV) post() rowsPost {
	return rowsPost{QKPost: o.Post(), rows: o.Rows, slots: o.Slots, kv: o.KV, t: o.T, layer: o.Layer, heads: o.Heads}
}

// apart tells whether a GPU's product cannot turn what it computes: biases come before, and a
// head's norm wants all of it.
func (o QKV) hasPost() bool { return !o.Bias.IsZero() || !o.HeadNorms.IsZero() }

// Host computes on the host.
func (o QKV) Host(h *device.Host) {
	q, kn := h.Float32(o.Out), o.K.Rows
	n := normRows(h, h.Float32(o.X), h.Float32(o.Norm)[:o.Hidden], o.Eps, o.T)
	kv := h.Scratch(o.T * 2 * kn)
	product(h, o.Q, n, o.T, q, o.Q.Rows, false)
	product(h, o.K, n, o.T, kv, 2*kn, false)
	product(h, o.V, n, o.T, kv[kn:], 2*kn, false)
	if o.DeferRoPE {
		copy(h.Float32(o.BeforeRoPE.Data), kv)
	} else {
		o.post().host(h, q, kv)
	}
	h.Return(kv)
	h.Return(n)
}
