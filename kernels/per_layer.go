package kernels

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels/device"
)

// PerLayerGate gates the input of a layer with an embedding of its own:
// X[t] = Activation(Scale·X[t]) ⊙ Inputs[t][Layer]. (Gemma 3n and 4.)
type PerLayerGate struct {
	X      device.Buffer // in and out: float32 [T][Cols]
	Inputs device.Buffer // float32 [rows][Layers][Cols]; without RowIndex T rows
	// RowIndex is int32 [T]: the row of Inputs for each row of X, or -1 for rows of X that are left as they are, which
	// come last; or none: row t of X takes row t.
	RowIndex device.Buffer

	T, Cols, Layer, Layers int
	Activation             Activation
	Scale                  float32 // 0: 1
}

// Kernel returns "inputs".
func (PerLayerGate) Kernel() string { return "inputs" }

// Check compares dimensions.
func (o PerLayerGate) Check() error {
	if o.Layer < 0 || o.Layer >= o.Layers {
		return fmt.Errorf("%w: the input of layer %d of %d", device.ErrBadShape, o.Layer, o.Layers)
	}
	rows := o.T
	if !o.RowIndex.IsZero() {
		rows = 1
	}
	return errors.Join(checkBuffers(need{"x", o.X, o.T * o.Cols}, need{"inputs", o.Inputs, rows * o.Layers * o.Cols}),
		checkOptional(need{"row index", o.RowIndex, o.T}))
}

// Host computes on the host.
func (o PerLayerGate) Host(h *device.Host) {
	x, inputs := h.Float32(o.X), h.Float32(o.Inputs)
	var rows []int32
	if !o.RowIndex.IsZero() {
		rows = h.Int32(o.RowIndex)[:o.T]
	}
	for t := range o.T {
		from := t
		if rows != nil {
			if from = int(rows[t]); from < 0 {
				return
			}
		}
		row := x[t*o.Cols : (t+1)*o.Cols]
		if o.Scale != 0 {
			for i := range row {
				row[i] *= o.Scale
			}
		}
		o.Activation.gate(row, inputs[(from*o.Layers+o.Layer)*o.Cols:][:o.Cols])
	}
}
