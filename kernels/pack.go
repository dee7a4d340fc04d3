package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
)

// A tile is the part of a weight that one tensor-core instruction multiplies: the M operand of
// mma.m16n8k16.
const (
	tileRows = 16
	tileCols = 16
)

// Pack reorders a weight into the layout Fragments: [ceil(rows/16)][cols/16][32 lanes]
// [8 elements] of 16 bits. Lane l of a tile holds rows l/4 and l/4+8, and of both
// the columns 4*(l%4) to 4*(l%4)+3, as {row, columns 0 1}, {row+8, 0 1}, {row, 2 3},
// {row+8, 2 3}. Rows past the last are zero. F32 is rounded to BF16, to nearest even.
type Pack struct {
	Src        device.Buffer // [Rows][Cols] of DType
	Dst        device.Buffer // out: packed, as the packed format of DType
	DType      DType
	Rows, Cols int
}

// Kernel returns "pack".
func (Pack) Kernel() string { return "pack" }

// packed returns the weight in Dst.
func (o Pack) packed() Weight {
	return Weight{Data: o.Dst, DType: formats[o.DType].packed, Layout: Fragments, Rows: o.Rows, Cols: o.Cols}
}

// PackedBytes returns the size of a matrix in the layout Fragments.
func PackedBytes(rows, cols int) int64 {
	return Weight{DType: BF16, Layout: Fragments, Rows: rows, Cols: cols}.bytes()
}

// CheckPacked returns [device.ErrBadShape] for a model's dimensions that the ops do not support
// on a GPU.
func CheckPacked(headDim, hidden, inner int) error {
	const mostHeadDim = 128
	for _, d := range []struct {
		name    string
		n, step int
	}{{"head_dim", headDim, 2 * tileRows}, {"hidden_size", hidden, tileCols}, {"intermediate_size", inner, tileCols}} {
		if d.n%d.step != 0 {
			return fmt.Errorf("%w: %s %d on a GPU: it must be a multiple of %d; --device host serves any",
				device.ErrBadShape, d.name, d.n, d.step)
		}
	}
	if headDim > mostHeadDim {
		return fmt.Errorf("%w: head_dim %d on a GPU: at most %d", device.ErrBadShape, headDim, mostHeadDim)
	}
	return nil
}

// Check compares dimensions.
func (o Pack) Check() error {
	if o.DType.Quantised() {
		return fmt.Errorf("%w: a quantised weight cannot be packed", device.ErrBadShape)
	}
	if o.Rows <= 0 || o.Cols <= 0 || o.Cols%tileCols != 0 {
		return fmt.Errorf("%w: weight [%d][%d] cannot be packed: columns must be a multiple of %d",
			device.ErrBadShape, o.Rows, o.Cols, tileCols)
	}
	source := Weight{Data: o.Src, DType: o.DType, Rows: o.Rows, Cols: o.Cols}
	if err := source.check("to pack", o.Rows, o.Cols); err != nil {
		return err
	}
	return o.packed().check("packed", o.Rows, o.Cols)
}

// Host packs on the host.
func (o Pack) Host(h *device.Host) {
	out, pack := h.Uint16(o.Dst), formats[o.DType].pack
	source := Weight{Data: o.Src, DType: o.DType, Rows: o.Rows, Cols: o.Cols}
	for i := range out {
		step := i / (tileRows * tileCols)
		lane, e := i/8%32, i%8
		row := step/(o.Cols/tileCols)*tileRows + lane/4 + e/2%2*8
		col := step%(o.Cols/tileCols)*tileCols + lane%4*4 + e/4*2 + e%2
		out[i] = 0
		if row < o.Rows {
			out[i] = pack(source.row(h, row), col)
		}
	}
}
