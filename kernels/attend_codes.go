package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// Attention of 2 to 8 rows before a product over quantised weights: on Hopper it hands its results over as products do,
// in the form of kernels/gemm/codes_handover.cuh.

// HeadsHandoverType returns the type in which attention of a class hands its results over to a product over the weights,
// or 0 if it does not: [Class.HandoverType], or in the decode class a quantised format, for the form that those products
// hand over. dim is the head size; attention of wide heads hands nothing over.
func (c Class) HeadsHandoverType(dim int, weights ...Weight) DType {
	if WideHeads(dim) {
		return 0
	}
	if c == Decode && allQuantised(weights) && canHandHeads(dim) {
		return weights[0].DType
	}
	return c.HandoverType(weights...)
}

// canHandHeads reports whether there are kernels of attention that do so: for the head sizes of large models. Half a
// warp rounds 16 elements of a head.
func canHandHeads(dim int) bool {
	size := (dim + 31) / 32
	return dim%16 == 0 && size != 1 && size != 3
}

// checkCodes refuses a hand-over to products over quantised weights for which there is no kernel.
func (o Attend) checkCodes() error {
	if o.Handover.DType.Quantised() && (o.Class != Decode || o.First > 0 || !o.Spread.IsZero() ||
		!canHandHeads(o.KV.HeadDim)) {
		return fmt.Errorf("%w: attention over heads of %d that hands its results over to quantised weights",
			device.ErrBadShape, o.KV.HeadDim)
	}
	return nil
}
