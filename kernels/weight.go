package kernels

import (
	"fmt"
	"math"
	"unsafe"

	"reel/kernels/device"
	"reel/kernels/vec"
)

// DType is the type of a weight's elements as the device keeps them.
type DType uint8

// The element types that ops read.
const (
	BF16 DType = iota + 1
	F32
	F16
)

// Size is the bytes of one element.
func (d DType) Size() int64 {
	if d == BF16 || d == F16 {
		return 2
	}
	return 4
}

// Layout is how a device packed a weight.
type Layout uint8

// The layouts.
const (
	// RowMajor is [Rows][Cols], as checkpoints have it.
	RowMajor Layout = iota
	// Fragments is the order of tensor-core operands: see Pack.
	Fragments
)

// Weight is a matrix that a product streams: output row r is the dot product of
// W[r] and an activation row. How it is packed is the device's business.
type Weight struct {
	Data       device.Buffer
	Scales     device.Buffer // of quantised formats; zero otherwise
	DType      DType
	Layout     Layout
	Rows, Cols int
}

// keep has a device hold a weight as it is.
func keep(m device.Memory, w Weight, data []byte) (Weight, error) {
	b, err := m.Load(data)
	if err != nil {
		return Weight{}, err
	}
	w.Data = b
	return w, nil
}

// bytes is what w takes in its layout.
func (w Weight) bytes() int64 {
	rows := w.Rows
	if w.Layout == Fragments {
		rows = (rows + tileRows - 1) / tileRows * tileRows
	}
	return int64(rows) * int64(w.Cols) * w.DType.Size()
}

// LoadVector gives a device a vector as float32: norm weights, RoPE tables.
func LoadVector(m device.Memory, v []float32) (device.Buffer, error) {
	if len(v) == 0 {
		return device.Buffer{}, fmt.Errorf("%w: empty vector", device.ErrBadShape)
	}
	return m.Load(unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*4))
}

func (w Weight) check(name string, rows, cols int) error {
	if w.Rows != rows || w.Cols != cols || w.Data.Bytes() != w.bytes() {
		return fmt.Errorf("%w: weight %s is [%d][%d] in %d bytes, wants [%d][%d]", device.ErrBadShape, name, w.Rows, w.Cols, w.Data.Bytes(), rows, cols)
	}
	return nil
}

// product computes y[t][r] = W[r]·x[t] for T rows, or adds it to y where add is
// set. x is [T][w.Cols]; row t of y starts at t*stride.
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

// rowProduct gives put the dot products of row r of w with T rows of x. A row's
// sum is the same whether it is computed alone or four at a time (package vec).
func rowProduct(h *device.Host, w Weight, r int, x []float32, T int, put func(t, r int, v float32)) {
	k := w.Cols
	if w.DType == F32 {
		row := h.Float32(w.Data)[r*k : (r+1)*k]
		for t := range T {
			put(t, r, vec.Dot(row, x[t*k:(t+1)*k]))
		}
		return
	}
	row := h.Uint16(w.Data)[r*k : (r+1)*k]
	if w.DType == F16 {
		wide := h.Scratch(k)
		widen(wide, row)
		for t := range T {
			put(t, r, vec.Dot(wide, x[t*k:(t+1)*k]))
		}
		h.Return(wide)
		return
	}
	t := 0
	for ; t+4 <= T; t += 4 {
		for i, v := range vec.DotBF16x4(row, x[t*k:], k) {
			put(t+i, r, v)
		}
	}
	for ; t < T; t++ {
		put(t, r, vec.DotBF16(row, x[t*k:(t+1)*k]))
	}
}

// widen writes the float32 values of float16 bits to y.
func widen(y []float32, bits []uint16) {
	for i, b := range bits {
		y[i] = Float16(b)
	}
}

// float16 is the float32 of float16 bits.
func Float16(b uint16) float32 {
	sign, rest := uint32(b&0x8000)<<16, uint32(b&0x7fff)<<13
	if rest >= 0x7c00<<13 { // infinity and NaN
		return math.Float32frombits(sign | 0x7f800000 | rest&0x7fffff)
	}
	// The exponents' biases differ by 112; the product is right for subnormals too.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(rest)*0x1p112))
}

// rmsNorm writes x·g / sqrt(mean(x²)+eps) to y; x, g and y have one length.
// Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
func rmsNorm(y, x, g []float32, eps float32) {
	scale := float32(1 / math.Sqrt(float64(vec.Dot(x, x))/float64(len(x))+float64(eps)))
	for i := range x {
		y[i] = g[i] * float32(x[i]*scale)
	}
}

// normRows lends a scratch [T][hidden] that holds the normed rows of x.
func normRows(h *device.Host, x, g []float32, eps float32, T int) []float32 {
	hidden := len(g)
	y := h.Scratch(T * hidden)
	for t := range T {
		rmsNorm(y[t*hidden:(t+1)*hidden], x[t*hidden:(t+1)*hidden], g, eps)
	}
	return y
}
