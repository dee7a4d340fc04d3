package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Int4 is the tensors of a matrix [rows][cols] of four-bit codes, whose columns form G groups. Its values are
// scale·(code − zero). Eight codes are a word of I32, the first in the low bits unless Layout says otherwise.
type Int4 struct {
	Layout Int4Layout
	Codes  Tensor // I32, see Layout
	Scales Tensor // [rows][G] of Int4Rows, else [G][rows]
	Zeros  Tensor // I32 [⌈rows/8⌉][G] or I8 [rows][G], less 8, of Int4Rows; else I32 [G][rows/8]; the zero Tensor: all are 8
	Order  Tensor // I32 [cols], the group of each column, not of Int4Interleaved; the zero Tensor: equal groups, in order
	Shape  Tensor // I64 [2], which repeats rows and cols; or the zero Tensor
	// ZerosLessOne means that each word of Zeros is less by 1 in every code. (GPTQModel: v1 to v2.)
	ZerosLessOne bool
	// Symmetric means that all zeros are 8. Some tools store them less one without saying so; both are 8.
	Symmetric bool
}

// Int4Layout is an order of codes.
type Int4Layout uint8

// The layouts.
const (
	// Int4Rows: Codes [rows][cols/8], words of eight columns. (compressed-tensors: pack_quantized.)
	Int4Rows Int4Layout = iota
	// Int4Columns: Codes [cols/8][rows], words of eight columns. (GPTQ: AutoGPTQ, GPTQModel.)
	Int4Columns
	// Int4Interleaved: Codes [cols][rows/8], words of eight rows, here and in Zeros in the order of awqShifts.
	// (AutoAWQ: awq/utils/packing_utils.py.)
	Int4Interleaved
)

// awqShifts holds the lowest bit of each of eight rows in a word.
var awqShifts = [8]int{0, 16, 4, 20, 8, 24, 12, 28}

// tileRows is the number of rows that are converted together, so that the reads of a column-major layout use whole
// cache lines.
const tileRows = 128

// int4Blocks are the blocks of four-bit codes, the largest first.
var int4Blocks = []DType{G4_128, G4_64, G4_32}

// int4 is an Int4 whose shapes are checked.
type int4 struct {
	Int4
	rows, cols, groups int
	block              DType
	group              []int   // of each block of a row
	order              []int32 // see Conversion
}

// Tensor returns the matrix in blocks of 128, 64 or 32 columns: the largest that lie in one group each. If groups are
// spread over the columns (activation order), the columns are sorted by group. Errors: ErrQuantised, ErrActOrder, and
// ErrChanged, since it reads Order.
func (q Int4) Tensor() (t Tensor, err error) {
	c := int4{Int4: q}
	err = Guard(func() error {
		if q.Layout == Int4Rows && unordered(q.Order) {
			c.Order = Tensor{}
		}
		if err := c.check(); err != nil {
			return err
		}
		return c.chooseBlock()
	})
	if err != nil {
		return Tensor{}, err
	}
	sources := []Tensor{q.Codes, q.Scales, q.Zeros, q.Order}
	t = converted(c.block, c.rows, c.cols, sources, c.write)
	t.Conversion.Order = c.order
	return t, nil
}

// unordered reports whether an order was declared and never set, so that groups are in order: -1 stands there.
// (compressed-tensors: quantization/lifecycle/forward.py.)
func unordered(order Tensor) bool {
	if order.DType != I32 {
		return false
	}
	for i := range len(order.Data) / 4 {
		if int32(word(order.Data, i)) == -1 {
			return true
		}
	}
	return false
}

// check sets the dimensions from Codes and Scales, and compares the other shapes with them.
func (q *int4) check() error {
	rows, cols, err := q.Codes.matrix(I32)
	if err != nil {
		return err
	}
	if len(q.Scales.Shape) != 2 {
		return q.Scales.refuse("it has the shape %v, wants two dimensions", q.Scales.Shape)
	}
	q.rows, q.cols, q.groups = rows, 8*cols, q.Scales.Shape[1]
	switch q.Layout {
	case Int4Columns:
		q.rows, q.cols, q.groups = cols, 8*rows, q.Scales.Shape[0]
	case Int4Interleaved:
		q.rows, q.cols, q.groups = 8*cols, rows, q.Scales.Shape[0]
	}
	if q.groups < 1 || q.groups > q.cols || q.cols%q.groups != 0 && q.Order.DType == 0 {
		return q.Scales.refuse("its shape is %v, and %d columns have no such groups", q.Scales.Shape, q.cols)
	}
	scales, zeros := []int{q.groups, q.rows}, []int{q.groups, q.rows / 8}
	if q.Layout == Int4Rows {
		scales, zeros = []int{q.rows, q.groups}, []int{ceil(q.rows, 8), q.groups}
	} else if q.rows%8 != 0 {
		return q.Codes.refuse("it has %d rows, wants a multiple of 8", q.rows)
	}
	err = q.Scales.wants(scales, floats...)
	switch {
	case err == nil && q.Zeros.DType == I8 && q.Layout == Int4Rows:
		err = q.Zeros.wants(scales, I8)
	case err == nil && q.Zeros.DType != 0:
		err = q.Zeros.wants(zeros, I32)
	}
	if err == nil && q.Order.DType != 0 {
		err = q.Order.wants([]int{q.cols}, I32)
	}
	if err == nil && q.Shape.DType != 0 {
		err = q.checkShape()
	}
	return err
}

// checkShape compares the tensor Shape with the dimensions.
func (q *int4) checkShape() error {
	if err := q.Shape.wants([]int{2}, I64); err != nil {
		return err
	}
	rows, cols := binary.LittleEndian.Uint64(q.Shape.Data), binary.LittleEndian.Uint64(q.Shape.Data[8:])
	if rows != uint64(q.rows) || cols != uint64(q.cols) {
		return q.Shape.refuse("it says [%d %d], and the codes are [%d %d]", rows, cols, q.rows, q.cols)
	}
	return nil
}

// chooseBlock sets block, the group of each block, and order if no block of columns has one group.
func (q *int4) chooseBlock() error {
	groups, err := q.columnGroups()
	if err != nil || q.setBlock(groups) {
		return err
	}
	if q.Order.DType == 0 || q.cols%32 != 0 {
		return q.Codes.refuse("%d columns in groups of %d, wants groups of a multiple of 32: take the model in another "+
			"format", q.cols, q.cols/q.groups)
	}
	q.order = make([]int32, q.cols)
	for i := range q.order {
		q.order[i] = int32(i)
	}
	slices.SortStableFunc(q.order, func(a, b int32) int { return groups[a] - groups[b] })
	slices.Sort(groups)
	if q.setBlock(groups) {
		return nil
	}
	return fmt.Errorf("%w: %s: %.80q has groups whose columns are no multiple of 32: take a checkpoint that was quantised "+
		"with desc_act false or static_groups true (actorder weight), or the model as GGUF", ErrActOrder, q.Order.File,
		q.Order.Name)
}

// setBlock sets block and group from the group of each column. It reports whether there is such a block.
func (q *int4) setBlock(groups []int) bool {
	for _, d := range int4Blocks {
		n, _ := d.Block()
		if q.group = blockGroups(groups, n); q.group != nil {
			q.block = d
			return true
		}
	}
	return false
}

// columnGroups returns the group of each column.
func (q *int4) columnGroups() ([]int, error) {
	groups := make([]int, q.cols)
	for i := range groups {
		groups[i] = i / (q.cols / q.groups)
		if q.Order.DType == 0 {
			continue
		}
		if groups[i] = int(int32(word(q.Order.Data, i))); groups[i] < 0 || groups[i] >= q.groups {
			return nil, q.Order.refuse("column %d is in group %d of %d", i, groups[i], q.groups)
		}
	}
	return groups, nil
}

// blockGroups returns the group of each block of n columns, or nil if a block has several groups.
func blockGroups(columns []int, n int) (groups []int) {
	if len(columns)%n != 0 {
		return nil
	}
	for i, g := range columns {
		if i%n == 0 {
			groups = append(groups, g)
		} else if g != columns[i-1] {
			return nil
		}
	}
	return groups
}

// write writes rows to dst.
func (q *int4) write(dst []byte, first int) error {
	n, size := q.block.Block()
	row := q.block.Bytes(q.cols)
	for ; len(dst) > 0; first += tileRows {
		tile := dst[:min(len(dst), tileRows*row)]
		dst = dst[len(tile):]
		if err := q.writeScales(tile, first); err != nil {
			return err
		}
		for at := 0; at < q.cols; at += 32 {
			q.writeCodes(tile[at/n*size+5+at%n/2:], row, first, ceil(len(tile), row), at/32)
		}
	}
	return nil
}

// writeScales writes scale and zero of all blocks of the rows of a tile.
func (q *int4) writeScales(tile []byte, first int) error {
	_, size := q.block.Block()
	for row := first; len(tile) > 0; row++ {
		for _, g := range q.group {
			zero, err := q.zero(row, g)
			if err != nil {
				return err
			}
			i := g*q.rows + row
			if q.Layout == Int4Rows {
				i = row*q.groups + g
			}
			binary.LittleEndian.PutUint32(tile, math.Float32bits(q.Scales.Float(i)))
			tile[4] = zero
			tile = tile[size:]
		}
	}
	return nil
}

// zero returns the zero point of a row and a group.
func (q *int4) zero(row, group int) (byte, error) {
	switch q.Zeros.DType {
	case 0:
		return 8, nil
	case I8:
		zero := int(int8(q.Zeros.Data[row*q.groups+group])) + 8
		if zero < 0 || zero > 15 {
			return 0, q.Zeros.refuse("the zero point of row %d in group %d is %d, wants -8 to 7", row, group, zero-8)
		}
		return byte(zero), nil
	}
	i, shift := group*(q.rows/8)+row/8, row%8*4
	switch q.Layout {
	case Int4Rows:
		i = row/8*q.groups + group
	case Int4Interleaved:
		shift = awqShifts[row%8]
	}
	codes := word(q.Zeros.Data, i)
	zero := byte(codes >> shift & 15)
	switch {
	case q.Symmetric && (zero == 7 || zero == 8):
		return 8, nil
	case q.Symmetric:
		return 0, q.Zeros.refuse("the config says that weights are symmetric, but the zero point of row %d in group %d "+
			"is stored as %d: download the checkpoint again, or take another", row, group, zero)
	case q.ZerosLessOne:
		return byte((codes + 0x1111_1111) >> shift & 15), nil
	}
	return zero, nil
}

// writeCodes writes the codes of the columns 32·at to 32·at+31 of n rows from first on, 16 bytes each, row bytes apart.
func (q *int4) writeCodes(dst []byte, row, first, n, at int) {
	if q.order != nil {
		q.writeOrdered(dst, row, first, n, q.order[32*at:32*at+32])
		return
	}
	data := q.Codes.Data
	switch q.Layout {
	case Int4Interleaved:
		q.writeInterleaved(dst, row, first, n, at)
	case Int4Columns:
		for r := range n {
			i := 4*at*q.rows + first + r
			putCodes(dst[r*row:], word(data, i), word(data, i+q.rows), word(data, i+2*q.rows), word(data, i+3*q.rows))
		}
	default:
		for r := range n {
			i := (first+r)*(q.cols/8) + 4*at
			putCodes(dst[r*row:], word(data, i), word(data, i+1), word(data, i+2), word(data, i+3))
		}
	}
}

// awqBytes holds the byte of each of eight rows in the words of transposed.
var awqBytes = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

// writeInterleaved is writeCodes of Int4Interleaved. It reads the words of eight rows at a time.
func (q *int4) writeInterleaved(dst []byte, row, first, n, at int) {
	for r := -(first % 8); r < n; r += 8 {
		var left, right [8]uint64
		for j := range left {
			left[j], right[j] = q.pairs(first+r, 32*at+j), q.pairs(first+r, 32*at+8+j)
		}
		transpose(&left)
		transpose(&right)
		for i, b := range awqBytes {
			if r+i >= 0 && r+i < n {
				binary.LittleEndian.PutUint64(dst[(r+i)*row:], left[b])
				binary.LittleEndian.PutUint64(dst[(r+i)*row+8:], right[b])
			}
		}
	}
}

// pairs returns the codes of eight rows, of a column in the low bits and of the column 16 further on in the high bits
// of each byte.
func (q *int4) pairs(row, column int) uint64 {
	at, next := column*(q.rows/8)+row/8, 16*(q.rows/8)
	a, b := word(q.Codes.Data, at), word(q.Codes.Data, at+next)
	const low = 0x0f0f_0f0f
	return uint64(a&low|b&low<<4) | uint64(a>>4&low|b&^low)<<32
}

// transpose exchanges byte i of word j with byte j of word i.
func transpose(m *[8]uint64) {
	for shift, mask := 32, uint64(0x0000_0000_ffff_ffff); shift >= 8; shift, mask = shift/2, mask^mask<<(shift/2) {
		step := shift / 8
		for i := range m {
			if i&step == 0 {
				swap := (m[i]>>shift ^ m[i+step]) & mask
				m[i], m[i+step] = m[i]^swap<<shift, m[i+step]^swap
			}
		}
	}
}

// writeOrdered is writeCodes of 32 columns that lie anywhere. Int4Interleaved has no order.
func (q *int4) writeOrdered(dst []byte, row, first, n int, columns []int32) {
	column, next := q.rows, 1 // words from one column of words to the next, and from a row to the next
	if q.Layout == Int4Rows {
		column, next = 1, q.cols/8
	}
	for r := range n {
		codes := (*[16]byte)(dst[r*row:])
		for j := range codes {
			a, b := int(columns[j]), int(columns[j+16])
			low := word(q.Codes.Data, a/8*column+(first+r)*next) >> (a % 8 * 4) & 15
			high := word(q.Codes.Data, b/8*column+(first+r)*next) >> (b % 8 * 4) & 15
			codes[j] = byte(low | high<<4)
		}
	}
}

// putCodes writes 32 codes, of four words: byte j holds code j in its low bits and code j+16 in its high ones.
func putCodes(dst []byte, a, b, c, d uint32) {
	binary.LittleEndian.PutUint64(dst, spread(a)|spread(c)<<4)
	binary.LittleEndian.PutUint64(dst[8:], spread(b)|spread(d)<<4)
}

// spread returns the eight codes of a word in the low bits of eight bytes.
func spread(word uint32) uint64 {
	x := uint64(word)
	x = (x | x<<16) & 0x0000_ffff_0000_ffff
	x = (x | x<<8) & 0x00ff_00ff_00ff_00ff
	return (x | x<<4) & 0x0f0f_0f0f_0f0f_0f0f
}
