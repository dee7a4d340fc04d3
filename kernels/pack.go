package kernels

import (
	"fmt"
	"math"

	"reel/kernels/device"
)

// The tile of a weight that one tensor-core step multiplies: mma.m16n8k16's M operand.
const (
	tileRows = 16
	tileCols = 16
)

// Pack puts a weight into the layout Fragments: [ceil(rows/16)][cols/16][32 lanes]
// [8 elements] of 16 bits. Lane l of a tile holds rows l/4 and l/4+8, and of both
// the columns 4*(l%4) to 4*(l%4)+3, as {row, columns 0 1}, {row+8, 0 1}, {row, 2 3},
// {row+8, 2 3}. Rows past the last are zero. F32 is rounded to BF16, to nearest even.
type Pack struct {
	Src        device.Buffer // [Rows][Cols] of DType
	Dst        device.Buffer // out: packed, BF16 where DType is F32
	DType      DType
	Rows, Cols int
}

// Kernel is "pack".
func (Pack) Kernel() string { return "pack" }

// packed is the weight in Dst.
func (o Pack) packed() Weight {
	w := Weight{Data: o.Dst, DType: o.DType, Layout: Fragments, Rows: o.Rows, Cols: o.Cols}
	if o.DType == F32 {
		w.DType = BF16
	}
	return w
}

// PackedBytes is what a matrix takes in the layout Fragments.
func PackedBytes(rows, cols int) int64 {
	return Weight{DType: BF16, Layout: Fragments, Rows: rows, Cols: cols}.bytes()
}

// CheckPacked refuses a model's dimensions that ops on a GPU cannot have.
func CheckPacked(headDim, hidden, inner int) error {
	const mostHeadDim = 128
	for _, d := range []struct {
		name    string
		n, step int
	}{{"head_dim", headDim, 2 * tileRows}, {"hidden_size", hidden, tileCols}, {"intermediate_size", inner, tileCols}} {
		if d.n%d.step != 0 {
			return fmt.Errorf("%w: %s %d on a GPU: it must be a multiple of %d", device.ErrBadShape, d.name, d.n, d.step)
		}
	}
	if headDim > mostHeadDim {
		return fmt.Errorf("%w: head_dim %d on a GPU: at most %d", device.ErrBadShape, headDim, mostHeadDim)
	}
	return nil
}

// Check compares dimensions.
func (o Pack) Check() error {
	if o.Rows <= 0 || o.Cols <= 0 || o.Cols%tileCols != 0 {
		return fmt.Errorf("%w: weight [%d][%d] cannot be packed: columns must be a multiple of %d", device.ErrBadShape, o.Rows, o.Cols, tileCols)
	}
	source := Weight{Data: o.Src, DType: o.DType, Rows: o.Rows, Cols: o.Cols}
	if err := source.check("to pack", o.Rows, o.Cols); err != nil {
		return err
	}
	return o.packed().check("packed", o.Rows, o.Cols)
}

// Host packs on the host.
func (o Pack) Host(h *device.Host) {
	out := h.Uint16(o.Dst)
	for i := range out {
		step := i / (tileRows * tileCols)
		lane, e := i/8%32, i%8
		row := step/(o.Cols/tileCols)*tileRows + lane/4 + e/2%2*8
		col := step%(o.Cols/tileCols)*tileCols + lane%4*4 + e/4*2 + e%2
		out[i] = 0
		if row < o.Rows {
			out[i] = o.element(h, row*o.Cols+col)
		}
	}
}

func (o Pack) element(h *device.Host, i int) uint16 {
	if o.DType != F32 {
		return h.Uint16(o.Src)[i]
	}
	return roundBF16(h.Float32(o.Src)[i])
}

// roundBF16 is the bfloat16 nearest to v, ties to even.
func roundBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return 0x7fff
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
