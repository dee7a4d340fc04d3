package kernels

import (
	"errors"
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// GateUp is the first half of a gated feed-forward: with n = rmsnorm(X[t]),
// Out[t] = Activation(Gate·n) ⊙ (Up·n) · Scale.
// (Shazeer, "GLU Variants Improve Transformer", 2020.)
type GateUp struct {
	X device.Buffer // float32 [T][hidden]; with RowIndex at least T rows, and all that it names
	// RowIndex is int32 [T]: the row of X for each row of Out, or -1 for rows of Out that nothing
	// reads, which come last. Without it row t of Out takes row t of X.
	RowIndex   device.Buffer
	Norm       device.Buffer // float32 [hidden]
	Gate, Up   Weight        // [inner][hidden]
	Out        device.Buffer // out: float32 [T][inner], unless Handover.Rounded takes the results
	Workspace  Workspace
	Handover   Handover // Norm is none
	T          int
	Eps        float32
	Class      Class
	Generated  Generated // rows of a mixed pass
	Activation Activation
	Scale      float32 // a power of two; 0: 1
	// Spread is the exchange that gives Out, this rank's part, to all ranks; or none. Out may then be left as it is.
	Spread Exchange
	Tags   Tags // of a pass whose values are tagged; without RowIndex
}

// Activation is the function of a gate.
type Activation uint8

// The activations.
const (
	SiLU     Activation = iota // a/(1+exp(-a))
	GELUTanh                   // a/2·(1+tanh(√(2/π)·(a+geluCubic·a³))), which is SiLU of another argument, see coefficients
)

const geluCubic = 0.044715 // (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016)

// gate replaces the elements of x by their activations times those of up.
func (f Activation) gate(x, up []float32) {
	linear, cubic := f.coefficients()
	vec.Gate(x, up, float32(linear), float32(cubic))
}

// coefficients returns those of the argument b = linear·a + cubic·a³ in a/(1+exp(-b)), which both activations are:
// (1+tanh(y))/2 = 1/(1+exp(-2y)).
func (f Activation) coefficients() (linear, cubic float64) {
	if f == SiLU {
		return 1, 0
	}
	linear = 2 * math.Sqrt(2/math.Pi)
	return linear, geluCubic * linear
}

// scale returns Scale, or 1.
func (o GateUp) scale() float32 {
	if o.Scale == 0 {
		return 1
	}
	return o.Scale
}

// Kernel returns "gateup".
func (GateUp) Kernel() string { return "gateup" }

// Check compares dimensions.
func (o GateUp) Check() error {
	inner, hidden := o.Gate.Rows, o.Gate.Cols
	if err := o.Gate.check("gate", inner, hidden); err != nil {
		return err
	}
	if err := o.Up.check("up", inner, hidden); err != nil {
		return err
	}
	if !o.Tags.Pass.IsZero() && !o.RowIndex.IsZero() {
		return fmt.Errorf("%w: gates of tagged values beside a list of rows", device.ErrBadShape)
	}
	return errors.Join(o.Generated.check(o.Class, o.T), o.Tags.check(o.T, hidden, max(1, o.Tags.Ranks)*inner/2, o.Gate, o.Up), o.Tags.checkSpread(o.Spread),
		checkRowIndex(o.RowIndex, o.T, o.Class), o.Spread.checkSpread(o.Out, o.T, inner), checkBuffers(
			need{"x", o.X, o.T * hidden}, need{"norm", o.Norm, hidden}, need{"out", o.Out, o.T * inner}))
}

// Host computes on the host.
func (o GateUp) Host(h *device.Host) {
	inner, hidden := o.Gate.Rows, o.Gate.Cols
	x, T := h.Float32(o.X), o.T
	if o.RowIndex.Bytes() > 0 {
		x, T = gatherRows(h, o.RowIndex, x, o.T, hidden)
		defer h.Return(x)
	}
	n := normRows(h, x, h.Float32(o.Norm)[:hidden], o.Eps, T)
	up, out := h.Scratch(T*inner), h.Float32(o.Out)[:T*inner]
	in, done := inputs(h, n, T, o.Gate, o.Up)
	h.For(inner, 2*inner*hidden*T, func(begin, end int) {
		rowsProduct(h, o.Gate, begin, end, in[0], sums{out, inner, false})
		rowsProduct(h, o.Up, begin, end, in[1], sums{up, inner, false})
		for t := range T {
			row := out[t*inner+begin : t*inner+end]
			o.Activation.gate(row, up[t*inner+begin:])
			if scale := o.scale(); scale != 1 {
				for i := range row {
					row[i] *= scale
				}
			}
		}
	})
	done()
	h.Return(up)
	h.Return(n)
	o.Spread.spread(h)
}

// Sends reports whether the next op may take the results of one row as they come: whether there is a kernel that sends.
func (o GateUp) Sends() bool {
	return o.T == 1 && o.RowIndex.IsZero() && o.Class == Decode && arePacked(o.Gate, o.Up) && o.Spread.fits()
}
