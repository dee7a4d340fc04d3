package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Capture takes rows of the model's residual stream as part Part of the features of an EAGLE-3 head:
//
//	Features[t][Part*Cols … Part*Cols+Cols) = X[t], or rmsnorm(X[t]) with a Norm
//
// With one part X and Features may be the same: that is a norm over all features.
// (Li et al., "EAGLE-3", 2025; the norms: vllm-project/speculators, norm_before_fc and fc_norm.)
type Capture struct {
	X        device.Buffer // float32 [T][Cols]
	Norm     device.Buffer // float32 [Cols], or none
	Features device.Buffer // out: float32 [T][Parts*Cols]
	Zero     device.Buffer // out: float32 [T][ZeroCols] of zeros, to which the product of the features adds; or none

	T, Cols, Part, Parts, ZeroCols int
	Eps                            float32
}

// Kernel returns "capture".
func (Capture) Kernel() string { return "capture" }

// Check compares dimensions.
func (o Capture) Check() error {
	if o.Part < 0 || o.Part >= o.Parts || o.Cols%4 != 0 || o.ZeroCols%4 != 0 || o.ZeroCols > 0 == o.Zero.IsZero() {
		return fmt.Errorf("%w: part %d of %d of features, %d columns each, %d of zeros", device.ErrBadShape, o.Part,
			o.Parts, o.Cols, o.ZeroCols)
	}
	needs := []need{{"x", o.X, o.T * o.Cols}, {"features", o.Features, o.T * o.Parts * o.Cols}}
	if !o.Norm.IsZero() {
		needs = append(needs, need{"norm", o.Norm, o.Cols})
	}
	if !o.Zero.IsZero() {
		needs = append(needs, need{"zeros", o.Zero, o.T * o.ZeroCols})
	}
	return checkBuffers(needs...)
}

// Host captures on the host.
func (o Capture) Host(h *device.Host) {
	x, features := h.Float32(o.X), h.Float32(o.Features)
	if !o.Norm.IsZero() {
		x = normRows(h, x, h.Float32(o.Norm)[:o.Cols], o.Eps, o.T)
		defer h.Return(x)
	}
	for t := range o.T {
		copy(features[(t*o.Parts+o.Part)*o.Cols:][:o.Cols], x[t*o.Cols:])
	}
	if !o.Zero.IsZero() {
		clear(h.Float32(o.Zero)[:o.T*o.ZeroCols])
	}
}
