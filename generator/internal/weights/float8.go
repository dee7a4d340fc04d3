package weights

import (
	"encoding/binary"
	"math"
	"slices"
)

// floats are the types of scales.
var floats = []DType{BF16, F16, F32}

// Float8 returns a matrix of F8 from codes of E4M3 [rows][cols] and the scales that multiply them: one for all ([] or
// [1]), one for each row ([rows] or [rows][1]), or, if side is not 0, one for each tile of side rows and columns
// ([⌈rows/side⌉][⌈cols/side⌉]). side is a multiple of 128. (compressed-tensors: compressors/naive_quantized;
// transformers: integrations/finegrained_fp8.py.) Errors: ErrQuantised.
func Float8(codes, scales Tensor, side int) (Tensor, error) {
	rows, cols, err := codes.matrix(F8_E4M3)
	if err != nil {
		return Tensor{}, err
	}
	block, _ := F8.Block()
	if cols%block != 0 {
		return Tensor{}, codes.refuse("it has %d columns, wants a multiple of %d: take the model in BF16", cols, block)
	}
	g, err := gridOf(scales, rows, cols/block, side/block)
	if err != nil {
		return Tensor{}, err
	}
	return converted(F8, rows, cols, []Tensor{codes, scales}, func(dst []byte, first int) error {
		for at := first * cols; len(dst) > 0; at += cols {
			for b := range cols / block {
				binary.LittleEndian.PutUint32(dst, math.Float32bits(g.at(at/cols, b)))
				copy(dst[4:4+block], codes.Data[at+b*block:])
				dst = dst[4+block:]
			}
		}
		return nil
	}), nil
}

// grid finds the scale of a block.
type grid struct {
	scales Tensor
	// rows and blocks of a row share a scale; a row of the grid has columns scales.
	rows, blocks, columns int
}

func (g *grid) at(row, block int) float32 {
	return g.scales.Float(row/g.rows*g.columns + block/g.blocks)
}

// gridOf returns the grid of a matrix, from the shape of its scales. side is the blocks of a tile's row; 0: no tiles.
func gridOf(scales Tensor, rows, blocks, side int) (grid, error) {
	block, _ := F8.Block()
	g, shape := grid{scales, 1, blocks, 1}, []int{rows, 1}
	switch {
	case len(scales.Shape) == 0 || slices.Equal(scales.Shape, []int{1}):
		g.rows, shape = rows, scales.Shape
	case len(scales.Shape) == 1:
		shape = []int{rows}
	case side > 0:
		g = grid{scales, side * block, side, ceil(blocks, side)}
		shape = []int{ceil(rows, g.rows), g.columns}
	}
	return g, scales.wants(shape, floats...)
}

// ceil returns a/b, rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }
