package kernels

import (
	"errors"

	"reel/kernels/device"
)

// Project is a product that ends in the residual: X[t] += W·In[t]. Attention's
// output projection and the feed-forward's down projection are this op. It is
// the one place where a sum over several GPUs, or a row's adapter, goes.
type Projection struct {
	W  Weight        // [hidden][in]
	In device.Buffer // float32 [T][in]; with Only at least T rows, and all that it names
	X  device.Buffer // in and out: float32 [T][hidden]
	// Only is int32 [T], the row of In for each row of X, or -1 for those of X that are left as
	// they are, which come last; or none, and each row of X has its own of In.
	RowIndex  device.Buffer
	Workspace Workspace
	Handover  Handover // of the prefill class
	T         int
	Class     Class
	// Name tells the two uses apart in reports: "output" or "down".
	Name ProjectionName
}

// ProjectName is which projection a Project is.
type ProjectionName uint8

// The two projections of a layer.
const (
	OutputProjection ProjectionName = iota
	DownProjection
)

// Kernel is "output" or "down".
func (o Projection) Kernel() string {
	if o.Name == DownProjection {
		return "down"
	}
	return "output"
}

// Check compares dimensions.
func (o Projection) Check() error {
	if err := o.W.check(o.Kernel(), o.W.Rows, o.W.Cols); err != nil {
		return err
	}
	return errors.Join(checkBuffers(need{"in", o.In, o.T * o.W.Cols}, need{"x", o.X, o.T * o.W.Rows}), checkRowIndex(o.RowIndex, o.T, o.Class == Prefill))
}

// Host computes on the host.
func (o Projection) Host(h *device.Host) {
	in, T := h.Float32(o.In), o.T
	if o.RowIndex.Bytes() > 0 {
		in, T = gatherRows(h, o.RowIndex, in, o.T, o.W.Cols)
		defer h.Return(in)
	}
	product(h, o.W, in, T, h.Float32(o.X), o.W.Rows, true)
}
