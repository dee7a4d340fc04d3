package kernels

import (
	"reel/kernels/device"
	"reel/kernels/vec"
)

// Embed begins the residual stream: X[t] = Table[token of row t].
type Embed struct {
	Table Weight        // [vocab][hidden]
	Rows  Rows          // tokens, int32 [T]
	X     device.Buffer // out: float32 [T][hidden]
	T     int
}

// Kernel is "embed".
func (Embed) Kernel() string { return "embed" }

// Check compares dimensions.
func (o Embed) Check() error {
	if err := o.Table.check("embedding", o.Table.Rows, o.Table.Cols); err != nil {
		return err
	}
	return checkBuffers(need{"tokens", o.Rows.Token, o.T}, need{"x", o.X, o.T * o.Table.Cols})
}

// Host embeds on the host.
func (o Embed) Host(h *device.Host) {
	tokens, x, hidden := h.Int32(o.Rows.Token), h.Float32(o.X), o.Table.Cols
	for t := range o.T {
		at, out := int(tokens[t])*hidden, x[t*hidden:(t+1)*hidden]
		if o.Table.DType == F32 {
			copy(out, h.Float32(o.Table.Data)[at:])
			continue
		}
		row := h.Uint16(o.Table.Data)[at : at+hidden]
		if o.Table.DType == F16 {
			widen(out, row)
			continue
		}
		for i, b := range row {
			out[i] = vec.BF16(b)
		}
	}
}
