package kernels

import (
	"fmt"
	"math"
	"unsafe"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// Layout is the order of a weight's elements in memory.
type Layout uint8

// The layouts.
const (
	// RowMajor is [Rows][Cols], as in checkpoints.
	RowMajor Layout = iota
	// Fragments is the order of tensor-core operands; see [Pack].
	Fragments
)

// Weight is a matrix that a product reads: output r of a row is the dot product of W[r] and
// the row's activations. The device chooses the layout.
type Weight struct {
	Data       device.Buffer
	DType      DType
	Layout     Layout
	Rows, Cols int
}

// loadRowMajor loads a weight as it is.
func loadRowMajor(m device.Memory, w Weight, data []byte) (Weight, error) {
	b, err := m.Load(data)
	if err != nil {
		return Weight{}, err
	}
	w.Data = b
	return w, nil
}

// bytes returns the size of w in its layout.
func (w Weight) bytes() int64 {
	rows := w.Rows
	if w.Layout == Fragments {
		rows = (rows + tileRows - 1) / tileRows * tileRows
	}
	return int64(rows) * w.DType.Bytes(int64(w.Cols))
}

// LoadVector loads a vector as float32: norm weights, RoPE tables. Errors:
// [device.ErrBadShape] for an empty vector, and the device's own.
func LoadVector(m device.Memory, v []float32) (device.Buffer, error) {
	if len(v) == 0 {
		return device.Buffer{}, fmt.Errorf("%w: empty vector", device.ErrBadShape)
	}
	return m.Load(unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*4))
}

func (w Weight) check(name string, rows, cols int) error {
	if w.Rows != rows || w.Cols != cols || w.Data.Bytes() != w.bytes() {
		return fmt.Errorf("%w: weight %s is [%d][%d] in %d bytes, wants [%d][%d]",
			device.ErrBadShape, name, w.Rows, w.Cols, w.Data.Bytes(), rows, cols)
	}
	return nil
}

// row returns row r of a row-major weight, undecoded.
func (w Weight) row(h *device.Host, r int) []byte {
	n := w.DType.Bytes(int64(w.Cols))
	return h.Bytes(w.Data)[int64(r)*n:][:n]
}

// product computes y[t][r] = W[r]·x[t] for T rows, or adds that to y if add is set. x is
// [T][w.Cols]; row t of y starts at t*stride.
func product(h *device.Host, w Weight, x []float32, T int, y []float32, stride int, add bool) {
	put := func(t, r int, v float32) {
		if add {
			v += y[t*stride+r]
		}
		y[t*stride+r] = v
	}
	h.For(w.Rows, w.Rows*w.Cols*T, func(begin, end int) {
		for r := begin; r < end; r++ {
			rowProduct(h, w, r, x, T, put)
		}
	})
}

// rowProduct passes to put the dot products of row r of w with T rows of x. A row's sum is the
// same if it is computed alone or with others (package vec). float32 and bfloat16 have
// loops of their own; other formats are decoded first.
func rowProduct(h *device.Host, w Weight, r int, x []float32, T int, put func(t, r int, v float32)) {
	k := w.Cols
	switch w.DType {
	case F32:
		row := h.Float32(w.Data)[r*k : (r+1)*k]
		for t := range T {
			put(t, r, vec.Dot(row, x[t*k:(t+1)*k]))
		}
	case BF16:
		row, t := h.Uint16(w.Data)[r*k:(r+1)*k], 0
		for ; t+4 <= T; t += 4 {
			for i, v := range vec.DotBF16x4(row, x[t*k:], k) {
				put(t+i, r, v)
			}
		}
		for ; t < T; t++ {
			put(t, r, vec.DotBF16(row, x[t*k:(t+1)*k]))
		}
	default:
		row := h.Scratch(k)
		formats[w.DType].decode(row, w.row(h, r))
		for t := range T {
			put(t, r, vec.Dot(row, x[t*k:(t+1)*k]))
		}
		h.Return(row)
	}
}

// rmsNorm writes x·g / sqrt(mean(x²)+eps) to y; x, g and y have the same length.
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.)
func rmsNorm(y, x, g []float32, eps float32) {
	scale := float32(1 / math.Sqrt(float64(vec.Dot(x, x))/float64(len(x))+float64(eps)))
	for i := range x {
		y[i] = g[i] * float32(x[i]*scale)
	}
}

// normRows returns scratch [T][hidden] with the normed rows of x. The caller returns it.
func normRows(h *device.Host, x, g []float32, eps float32, T int) []float32 {
	hidden := len(g)
	y := h.Scratch(T * hidden)
	for t := range T {
		rmsNorm(y[t*hidden:(t+1)*hidden], x[t*hidden:(t+1)*hidden], g, eps)
	}
	return y
}
