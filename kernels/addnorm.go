package kernels

import (
	"errors"
	"slices"

	"reel.internal/reel/kernels/device"
)

// AddNorm adds a branch of a layer to the residual stream, after a norm: X[t] = Scale·(X[t] + rmsnorm(Branch[t])). It is
// for families that norm the results of attention and of the feed-forward, which a [Projection] with Store leaves in
// Branch. (Liu et al., "Swin Transformer V2", 2022; Scale: Gemma 4.)
type AddNorm struct {
	Branch device.Buffer // float32 [T][Cols]
	Norm   device.Buffer // float32 [Cols]
	X      device.Buffer // in and out, with Store out: float32 [T][Cols]
	// RowIndex is int32 [T], or none: rows for which it has -1, which come last, are left as they are.
	RowIndex device.Buffer

	T, Cols int
	Eps     float32
	Scale   float32 // 0: 1
	Store   bool    // X holds nothing before
}

// Kernel returns "addnorm".
func (AddNorm) Kernel() string { return "addnorm" }

// Check compares dimensions.
func (o AddNorm) Check() error {
	return errors.Join(checkBuffers(need{"branch", o.Branch, o.T * o.Cols}, need{"norm", o.Norm, o.Cols},
		need{"x", o.X, o.T * o.Cols}), checkOptional(need{"row index", o.RowIndex, o.T}))
}

// Host computes on the host.
func (o AddNorm) Host(h *device.Host) {
	branch, x, rows := h.Float32(o.Branch), h.Float32(o.X), o.T
	if !o.RowIndex.IsZero() {
		if i := slices.Index(h.Int32(o.RowIndex)[:o.T], -1); i >= 0 {
			rows = i
		}
	}
	n := normRows(h, branch, h.Float32(o.Norm)[:o.Cols], o.Eps, rows)
	if o.Store {
		clear(x[:len(n)])
	}
	for i, v := range n {
		x[i] += v
	}
	if o.Scale != 0 {
		for i := range n {
			x[i] *= o.Scale
		}
	}
	h.Return(n)
}
