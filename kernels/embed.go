package kernels

import (
	"errors"

	"reel.internal/reel/kernels/device"
)

// Embed starts the residual stream: X[t] = Scale · Table[token of row t].
type Embed struct {
	Table Weight        // [vocab][hidden]
	Rows  Rows          // tokens, int32 [T]
	X     device.Buffer // out: float32 [T][hidden]
	T     int
	Scale float32 // 0: 1
	Tags  Tags    // of a pass whose values are tagged
}

// Kernel returns "embed".
func (Embed) Kernel() string { return "embed" }

// Check compares dimensions.
func (o Embed) Check() error {
	if err := o.Table.check("embedding", o.Table.Rows, o.Table.Cols); err != nil {
		return err
	}
	return errors.Join(o.Tags.check(o.T, 0, o.Table.Cols),
		checkBuffers(need{"tokens", o.Rows.Token, o.T}, need{"x", o.X, o.T * o.Table.Cols}))
}

// Host embeds on the host.
func (o Embed) Host(h *device.Host) {
	tokens, x, hidden, f := h.Int32(o.Rows.Token), h.Float32(o.X), o.Table.Cols, &formats[o.Table.DType]
	for t := range o.T {
		row := x[t*hidden : (t+1)*hidden]
		f.values(row, o.Table.row(h, int(tokens[t])))
		if scale := o.scale(); scale != 1 {
			for i := range row {
				row[i] *= scale
			}
		}
	}
}

// scale returns what rows are multiplied by.
func (o Embed) scale() float32 {
	if o.Scale == 0 {
		return 1
	}
	return o.Scale
}
