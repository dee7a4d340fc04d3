package kernels

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Projection is a product that adds to the residual stream: X[t] += W·In[t] + Bias. A layer has two:
// the output projection of attention and the down projection of the feed-forward. A sum
// over several GPUs, or a row's adapter, would go here. With Store it replaces X[t], for an [AddNorm]
// that adds the result to the stream.
type Projection struct {
	W  Weight        // [hidden][in]
	In device.Buffer // float32 [T][in]; with RowIndex at least T rows, and all that it names
	X  device.Buffer // in and out, with Store out: float32 [T][hidden]
	// RowIndex is int32 [T]: the row of In for each row of X, or -1 for rows of X that are not
	// written, which come last. Without it row t of X takes row t of In.
	RowIndex  device.Buffer
	Bias      device.Buffer // float32 [hidden], or none
	Workspace Workspace
	Handover  Handover
	T         int
	Class     Class
	Generated Generated // rows of a mixed pass
	Name      ProjectionName
	Store     bool // X holds nothing before; a Handover is for the sum, that of Spread if there is one
	// Spread is the exchange that gives X, with Store and without RowIndex this rank's part, to all ranks; or none. X
	// may then be left as it is, and the other columns of Spread.X, see [Complete].
	Spread Exchange
	Before Exchange // that of In, if this op takes it; with a Spread ([Exchange.TakenBy])
	// Tags are those of a pass whose values are tagged: without RowIndex, and with Store only beside a Spread that adds.
	Tags Tags
}

// ProjectionName is which projection of a layer a [Projection] is. It only names the op in
// reports.
type ProjectionName uint8

// The two projections of a layer, that of an EAGLE-3 head's features, and those of layers with embeddings of their own
// ([PerLayerGate]): one that gives the inputs of all layers, and two around the gate of each.
const (
	OutputProjection ProjectionName = iota
	DownProjection
	FeatureProjection
	InputsProjection
	InputGate
	InputProjection
)

// Kernel returns "output", "down", "features", "layer inputs", "input gate" or "layer input".
func (o Projection) Kernel() string {
	return [...]string{"output", "down", "features", "layer inputs", "input gate", "layer input"}[o.Name]
}

// Check compares dimensions.
func (o Projection) Check() error {
	if err := o.W.check(o.Kernel(), o.W.Rows, o.W.Cols); err != nil {
		return err
	}
	if o.Store && !o.Handover.Rounded.IsZero() && o.Handover.Ranks < 2 {
		return fmt.Errorf("%w: a projection that stores hands nothing over", device.ErrBadShape)
	}
	if o.Before.taken && (o.Before.All != o.In || o.T != 1 || !o.RowIndex.IsZero() || o.Class != Decode ||
		!o.Spread.fits()) {
		return fmt.Errorf("%w: a projection of %d rows that takes what another op sends", device.ErrBadShape, o.T)
	}
	if !o.Spread.IsZero() && (!o.Store || !o.Bias.IsZero()) {
		return fmt.Errorf("%w: an exchange adds what a projection stores", device.ErrBadShape)
	}
	return errors.Join(o.Spread.checkSpread(o.X, o.T, o.W.Rows), o.checkTags(), o.Generated.check(o.Class, o.T),
		checkBuffers(need{"in", o.In, o.T * o.W.Cols}, need{"x", o.X, o.T * o.W.Rows}),
		checkOptional(need{"bias", o.Bias, o.W.Rows}), checkRowIndex(o.RowIndex, o.T, o.Class))
}

// checkTags refuses tags of a projection that does not add to the residual stream of one row.
func (o Projection) checkTags() error {
	adds := !o.Store || !o.Spread.X.IsZero()
	if !o.Tags.Pass.IsZero() && (!o.RowIndex.IsZero() || !adds) {
		return fmt.Errorf("%w: a projection of tagged values adds to the residual stream of one row", device.ErrBadShape)
	}
	return errors.Join(o.Tags.checkSpread(o.Spread), o.Tags.check(o.T, o.W.Cols/2, max(1, o.Tags.Ranks)*o.W.Rows, o.W))
}

// Host computes on the host.
func (o Projection) Host(h *device.Host) {
	in, T := h.Float32(o.In), o.T
	if o.RowIndex.Bytes() > 0 {
		in, T = gatherRows(h, o.RowIndex, in, o.T, o.W.Cols)
		defer h.Return(in)
	}
	x := h.Float32(o.X)
	for t := range T {
		o.begin(h, x[t*o.W.Rows:(t+1)*o.W.Rows])
	}
	product(h, o.W, in, T, x, o.W.Rows, true)
	o.Spread.spread(h)
}

// begin makes a row what the product adds to.
func (o Projection) begin(h *device.Host, row []float32) {
	if o.Store {
		clear(row)
	}
	if !o.Bias.IsZero() {
		for i, b := range h.Float32(o.Bias)[:len(row)] {
			row[i] += b
		}
	}
}
