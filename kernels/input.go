package kernels

import (
	"unsafe"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// input is rows of activations as products with a weight take them on the host.
type input struct {
	rows   int
	values []float32 // [rows][cols]
	// rounded is the nearest bfloat16 [rows][PaddedBF16(cols)], instead of values: for weights in bfloat16. The tensor
	// cores of a GPU take the same.
	rounded []uint16
}

// inputs returns x [T][Cols] as products with each of the weights take it. The caller calls done when it is not needed
// any more.
func inputs(h *device.Host, x []float32, T int, weights ...Weight) (in []input, done func()) {
	in = make([]input, len(weights))
	var scratch [][]float32
	for i, w := range weights {
		if i > 0 && w.takesInputOf(weights[i-1]) {
			in[i] = in[i-1]
			continue
		}
		values := x[:T*w.Cols]
		if !w.Order.IsZero() {
			values = w.inOrder(h, x, T)
			scratch = append(scratch, values)
		}
		if in[i] = (input{rows: T, values: values}); w.DType == BF16 {
			s, rounded := roundRows(h, values, T, w.Cols)
			in[i], scratch = input{rows: T, rounded: rounded}, append(scratch, s)
		}
	}
	return in, func() {
		for _, s := range scratch {
			h.Return(s)
		}
	}
}

// takesInputOf reports whether w takes activations as v does, of the same number of columns.
func (w Weight) takesInputOf(v Weight) bool {
	return w.Order.IsZero() && v.Order.IsZero() && (w.DType == BF16) == (v.DType == BF16)
}

// inOrder returns scratch with the elements of each row of x in the order of w's columns.
func (w Weight) inOrder(h *device.Host, x []float32, T int) []float32 {
	y, order := h.Scratch(T*w.Cols), h.Int32(w.Order)
	for t := range T {
		from, to := x[t*w.Cols:(t+1)*w.Cols], y[t*w.Cols:(t+1)*w.Cols]
		for j, i := range order {
			to[j] = from[i]
		}
	}
	return y
}

// roundWork is the time of rounding a number, in multiply-adds.
const roundWork = 16

// roundRows returns rows of x as bfloat16 [T][PaddedBF16(cols)], and the scratch that has them.
func roundRows(h *device.Host, x []float32, T, cols int) (scratch []float32, rounded []uint16) {
	padded := vec.PaddedBF16(cols)
	scratch = h.Scratch(T * padded / 2)
	if T == 0 {
		return scratch, nil
	}
	rounded = unsafe.Slice((*uint16)(unsafe.Pointer(&scratch[0])), T*padded)
	h.For(T, roundWork*T*cols, func(begin, end int) {
		for t := begin; t < end; t++ {
			vec.RoundBF16(rounded[t*padded:(t+1)*padded], x[t*cols:(t+1)*cols])
		}
	})
	return scratch, rounded
}
