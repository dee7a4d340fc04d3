package kernels

import (
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
)

// Join makes the input of an EAGLE-3 head's layer from a row's token and the feature f of the token before it:
//
//	n(v) = v/√(mean(v²)+Eps), of e = Embedded[t] and f
//	X[t] = f, or n(f)·Norm[Cols … 2·Cols) with NormedResidual
//	Out[t] = c·(n(e), n(f)) with c such that rmsnorm(Out[t]) = (n(e), n(f)) for the same Eps
//
// So a [QKV] over 2·Cols columns with Norm gives the products of (rmsnorm(e), rmsnorm(f)). c exists: with
// a = n(e)/e and b = n(f)/f, mean(Out²)/c² is 1 - Eps·(a²+b²)/2, so c = √(2/(a²+b²)).
//
// f is that of the row before, if that is the token before in the same sequence; of a pass's first row it is the one
// that [Keep] left in the token's page, and 0 at position 0. With Own it is X itself, after n and Output if that is
// there: the next draft's rows take what the layer gave. (Li et al., "EAGLE-3", 2025.)
type Join struct {
	Embedded device.Buffer // float32 [T][Cols]: the rows' embeddings
	Features device.Buffer // float32 [T][Cols]: the features of the rows; or none: no row follows another
	Norm     device.Buffer // float32 [2*Cols]: for e, then for f
	Output   device.Buffer // float32 [Cols]: the norm of what the layer gave, with Own; or none
	X        device.Buffer // out: float32 [T][Cols]; also in with Own
	Out      device.Buffer // out: float32 [T][2*Cols]
	Rows     Rows
	Slots    Slots
	Kept     Features

	T, Cols             int
	Eps                 float32
	Own, NormedResidual bool
}

// Kernel returns "join".
func (Join) Kernel() string { return "join" }

// Check compares dimensions.
func (o Join) Check() error {
	if o.Cols%4 != 0 || o.Own && !o.Features.IsZero() || !o.Own && !o.Output.IsZero() {
		return fmt.Errorf("%w: joined rows of 2·%d columns", device.ErrBadShape, o.Cols)
	}
	n := o.T * o.Cols
	needs := []need{{"embedded", o.Embedded, n}, {"norm", o.Norm, 2 * o.Cols}, {"x", o.X, n}, {"out", o.Out, 2 * n},
		{"slots of rows", o.Rows.Slot, o.T}, {"positions", o.Rows.Position, o.T}}
	if !o.Features.IsZero() {
		needs = append(needs, need{"features", o.Features, n})
	}
	if !o.Output.IsZero() {
		needs = append(needs, need{"output norm", o.Output, o.Cols})
	}
	if err := checkBuffers(needs...); err != nil || o.Own {
		return err
	}
	if o.Kept.cols() != o.Cols {
		return fmt.Errorf("%w: kept features of %d columns, wants %d", device.ErrBadShape, o.Kept.cols(), o.Cols)
	}
	if err := o.Slots.check(); err != nil {
		return err
	}
	return o.Kept.check()
}

// Host joins on the host.
func (o Join) Host(h *device.Host) {
	n, norm := o.Cols, h.Float32(o.Norm)
	f := h.Scratch(n)
	for t := range o.T {
		e, x := h.Float32(o.Embedded)[t*n:][:n], h.Float32(o.X)[t*n:][:n]
		o.feature(h, t, f)
		a, b := inverseRMS(e, o.Eps), inverseRMS(f, o.Eps)
		c := float32(math.Sqrt(float64(2 / (a*a + b*b))))
		out := h.Float32(o.Out)[2*t*n:][:2*n]
		for i := range n {
			out[i], out[n+i] = e[i]*(a*c), f[i]*(b*c)
			if x[i] = f[i]; o.NormedResidual {
				x[i] = f[i] * b * norm[n+i]
			}
		}
	}
	h.Return(f)
}

// feature sets f to the feature of the token before row t.
func (o Join) feature(h *device.Host, t int, f []float32) {
	n, slots, positions := o.Cols, h.Int32(o.Rows.Slot), h.Int32(o.Rows.Position)
	switch {
	case o.Own:
		copy(f, h.Float32(o.X)[t*n:])
		if !o.Output.IsZero() {
			by := inverseRMS(f, o.Eps)
			for i, w := range h.Float32(o.Output)[:n] {
				f[i] *= by * w
			}
		}
	case !o.Features.IsZero() && t > 0 && slots[t-1] == slots[t] && positions[t-1] == positions[t]-1:
		copy(f, h.Float32(o.Features)[(t-1)*n:])
	case positions[t] == 0:
		clear(f)
	default:
		copy(f, o.Kept.at(h, o.Slots, slots[t], positions[t]-1))
	}
}

// inverseRMS returns 1/√(mean(v²)+eps).
func inverseRMS(v []float32, eps float32) float32 {
	sum := float32(0)
	for _, x := range v {
		sum += x * x
	}
	return float32(1 / math.Sqrt(float64(sum/float32(len(v))+eps)))
}
