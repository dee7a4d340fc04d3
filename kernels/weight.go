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
	// Fragments is the order of tensor-core operands of 16 bits; see [Pack].
	Fragments
	// Codes is the order of tensor-core operands that kernels unpack from codes of quantised weights; codes.go has it.
	Codes
)

// Weight is a matrix that a product reads: output r of a row is the dot product of W[r] and
// the row's activations. The device chooses the layout.
type Weight struct {
	Data       device.Buffer
	DType      DType
	Layout     Layout
	Rows, Cols int
	// Order is int32 [Cols], a permutation: column j of the weight multiplies element Order[j] of a row. None: the
	// same element. Only a host's products have one.
	Order device.Buffer
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
	tiles := int64(tilesOf(w.Rows))
	switch w.Layout {
	case Fragments:
		return tiles * tileRows * w.DType.Bytes(int64(w.Cols))
	case Codes:
		b := &bricks[w.DType]
		return tiles * int64(b.count(w.Cols)) * int64(b.bytes())
	}
	return int64(w.Rows) * w.DType.Bytes(int64(w.Cols))
}

// tilesOf returns how many tiles of 16 rows a weight has.
func tilesOf(rows int) int { return (rows + tileRows - 1) / tileRows }

// LoadVector loads a vector as float32: norm weights, RoPE tables. Errors:
// [device.ErrBadShape] for an empty vector, and the device's own.
func LoadVector(m device.Memory, v []float32) (device.Buffer, error) {
	if len(v) == 0 {
		return device.Buffer{}, fmt.Errorf("%w: empty vector", device.ErrBadShape)
	}
	return m.Load(bytesOf(v))
}

// bytesOf returns the memory of a vector, which is not empty.
func bytesOf(v []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*4) }

// LoadIndex loads int32 0, 1, 2, … for rows rows. It returns the device's errors.
func LoadIndex(m device.Memory, rows int) (device.Buffer, error) {
	index := make([]int32, rows)
	for i := range index {
		index[i] = int32(i)
	}
	return m.Load(unsafe.Slice((*byte)(unsafe.Pointer(&index[0])), 4*rows))
}

// arePacked reports whether kernels for weights of 16 bits read all of these as one op's: in fragments, of one type.
func arePacked(weights ...Weight) bool {
	for _, w := range weights {
		if w.Layout != Fragments || w.DType == F32 || w.DType != weights[0].DType {
			return false
		}
	}
	return true
}

func (w Weight) check(name string, rows, cols int) error {
	if w.Rows != rows || w.Cols != cols || w.Data.Bytes() != w.bytes() {
		return fmt.Errorf("%w: weight %s is [%d][%d] in %d bytes, wants [%d][%d]",
			device.ErrBadShape, name, w.Rows, w.Cols, w.Data.Bytes(), rows, cols)
	}
	if !w.Order.IsZero() && (w.Layout != RowMajor || w.Order.Bytes() != 4*int64(cols)) {
		return fmt.Errorf("%w: weight %s has the layout %d and %d columns in order, wants %d", device.ErrBadShape, name,
			w.Layout, w.Order.Bytes()/4, cols)
	}
	return nil
}

// row returns row r of a row-major weight, undecoded.
func (w Weight) row(h *device.Host, r int) []byte { return w.rows(h, r, r+1) }

// rows returns the rows of a row-major weight from begin to end, undecoded.
func (w Weight) rows(h *device.Host, begin, end int) []byte {
	n := w.DType.Bytes(int64(w.Cols))
	return h.Bytes(w.Data)[int64(begin)*n : int64(end)*n]
}

// sums is where products go: y[t*stride+r] is that of row r of a weight and row t of activations, or has it added.
type sums struct {
	y      []float32
	stride int
	add    bool
}

func (s sums) put(t, r int, v float32) {
	if s.add {
		v += s.y[t*s.stride+r]
	}
	s.y[t*s.stride+r] = v
}

// product computes y[t][r] = W[r]·x[t] for T rows, or adds that to y if add is set. x is
// [T][w.Cols]; row t of y starts at t*stride.
func product(h *device.Host, w Weight, x []float32, T int, y []float32, stride int, add bool) {
	products(h, x, T, target{w, sums{y, stride, add}})
}

// target is a weight and where its products go.
type target struct {
	w  Weight
	to sums
}

// products computes the products of T rows of x with several weights, which have the same number of columns.
func products(h *device.Host, x []float32, T int, targets ...target) {
	rows, weights := 0, make([]Weight, len(targets))
	for i, t := range targets {
		weights[i], rows = t.w, rows+t.w.Rows
	}
	in, done := inputs(h, x, T, weights...)
	h.For(rows, rows*weights[0].Cols*T, func(begin, end int) {
		for i, t := range targets {
			if begin < t.w.Rows && end > 0 {
				rowsProduct(h, t.w, max(begin, 0), min(end, t.w.Rows), in[i], t.to)
			}
			begin, end = begin-t.w.Rows, end-t.w.Rows
		}
	})
	done()
}

// rowsProduct computes the dot products of w's rows from begin to end with an input of w. A sum is the same if it is
// computed alone or with others, and the same over a quantised row as over its values (package vec).
func rowsProduct(h *device.Host, w Weight, begin, end int, in input, to sums) {
	switch {
	case in.rows == 0:
	case w.DType == BF16:
		roundedProduct(h, w, begin, end, in.rounded, to)
	case in.rows == 1 && rowDots(h, w, begin, end, in.values, to):
	default:
		decodedProduct(h, w, begin, end, in.values, to)
	}
}

// togetherRows is the number of rows of a weight that package vec takes together.
const togetherRows = 4

// decodedProduct is rowsProduct by way of decoded rows.
func decodedProduct(h *device.Host, w Weight, begin, end int, x []float32, to sums) {
	values := h.Scratch(togetherRows * w.Cols)
	for r := begin; r < end; {
		next := min(end, r+togetherRows)
		ahead := w.rows(h, next, min(end, next+togetherRows))
		vec.Products(to.y[r:], x, w.values(h, r, next, values), w.Cols, to.stride, to.add, ahead)
		r = next
	}
	h.Return(values)
}

// roundedProduct is rowsProduct for weights in bfloat16. Rows are copied where package vec cannot read them in place.
func roundedProduct(h *device.Host, w Weight, begin, end int, x []uint16, to sums) {
	d := vec.PaddedBF16(w.Cols)
	if d == w.Cols && vec.ReadsMapped() {
		vec.ProductsBF16(to.y[begin:], x, w.rows(h, begin, end), d, to.stride, to.add)
		return
	}
	scratch := h.Scratch((togetherRows*d + 1) / 2)
	copies := bytesOf(scratch)
	for r := begin; r < end; r += togetherRows {
		n := min(togetherRows, end-r)
		for i := range n {
			row := copies[2*i*d : 2*(i+1)*d]
			clear(row[copy(row, w.row(h, r+i)):])
		}
		vec.ProductsBF16(to.y[r:], x, copies[:2*n*d], d, to.stride, to.add)
	}
	h.Return(scratch)
}

// rowDots is rowsProduct for one row of x. It returns false if the machine has no loop for w's format.
func rowDots(h *device.Host, w Weight, begin, end int, x []float32, to sums) bool {
	loops := formats[w.DType].loops
	if loops == nil {
		return false
	}
	out := h.Scratch(end - begin)
	defer h.Return(out)
	if !loops.Dots(out, w.rows(h, begin, end), x[:w.Cols]) {
		return false
	}
	for i, v := range out {
		to.put(0, begin+i, v)
	}
	return true
}

// values returns the values of the rows of a row-major weight from begin to end: themselves, or decoded into scratch.
func (w Weight) values(h *device.Host, begin, end int, scratch []float32) []float32 {
	if w.DType == F32 {
		return h.Float32(w.Data)[begin*w.Cols : end*w.Cols]
	}
	scratch = scratch[:(end-begin)*w.Cols]
	formats[w.DType].values(scratch, w.rows(h, begin, end))
	return scratch
}

// NoNorm is an Eps with which QKV and GateUp multiply their rows by Norm and do not norm them. It is for families
// without norms before attention and feed-forward, whose Norm holds ones.
const NoNorm = -1

// rmsNorm writes x·g / sqrt(mean(x²)+eps) to y, with NoNorm x·g; x, g and y have the same length.
// (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.)
func rmsNorm(y, x, g []float32, eps float32) {
	scale := float32(1)
	if eps != NoNorm {
		scale = float32(1 / math.Sqrt(float64(vec.Dot(x, x))/float64(len(x))+float64(eps)))
	}
	vec.Scale(y, x, g, scale)
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
