package kernels

import (
	"errors"
	"math"

	"reel.internal/reel/kernels/device"
)

// Head computes the logits of the sampled rows: Logits[i] = W·rmsnorm(X[row of sample i]).
// With Softcap c they are c·tanh(·/c) of that. The logits of padding samples, which come last, are not written.
// (Bello et al., "Neural Combinatorial Optimization with Reinforcement Learning", 2016.)
type Head struct {
	X         device.Buffer // float32 [T][hidden]
	Norm      device.Buffer // float32 [hidden]
	W         Weight        // [vocab][hidden]
	Rows      Rows          // samples, int32 [N]
	Logits    device.Buffer // out: float32 [N][vocab]
	Workspace Workspace     // Partials is none
	T, N      int
	Eps       float32
	// Softcap bounds the logits; 0: nothing does. A GPU then has a launch more.
	Softcap float32
	Tags    Tags // of a pass whose values are tagged
}

// Kernel returns "head".
func (Head) Kernel() string { return "head" }

// Check compares dimensions.
func (o Head) Check() error {
	if err := o.W.check("head", o.W.Rows, o.W.Cols); err != nil {
		return err
	}
	return errors.Join(o.Tags.check(o.T, o.W.Cols, 0, o.W), checkBuffers(
		need{"x", o.X, o.T * o.W.Cols}, need{"norm", o.Norm, o.W.Cols}, need{"samples", o.Rows.Sample, o.N},
		need{"logits", o.Logits, o.N * o.W.Rows}))
}

// Host computes on the host.
func (o Head) Host(h *device.Host) {
	hidden := o.W.Cols
	x, rows := gatherRows(h, o.Rows.Sample, h.Float32(o.X), o.N, hidden)
	n := normRows(h, x, h.Float32(o.Norm)[:hidden], o.Eps, rows)
	if rows > 0 {
		product(h, o.W, n, rows, h.Float32(o.Logits), o.W.Rows, false)
		o.bound(h, h.Float32(o.Logits)[:rows*o.W.Rows])
	}
	h.Return(n)
	h.Return(x)
}

// bound bounds logits if there is a Softcap.
func (o Head) bound(h *device.Host, logits []float32) {
	if o.Softcap == 0 {
		return
	}
	limit := float64(o.Softcap)
	h.For(len(logits), 32*len(logits), func(begin, end int) {
		for i, v := range logits[begin:end] {
			logits[begin+i] = float32(limit * math.Tanh(float64(v)/limit))
		}
	})
}
