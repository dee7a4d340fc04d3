package kernels

import "encoding/binary"

// The layout Codes of quantised weights, which kernels/gemm/formats.cuh reads. A weight is
// [ceil(rows/16)][ceil(cols/brick.columns)] bricks. A brick is [columns/64] quarters and the scales of its 16 rows.
//
// A quarter holds the codes of 64 columns as four A operands of mma.m16n8k16, steps of 16 columns. Lane l of a step
// has rows l/4 and l/4+8 and of both the columns 4·(l%4) to 4·(l%4)+3, eight codes. Column e of the four and row half
// h (0: l/4, 1: l/4+8) go to half e%2 of register e/2·2+h. A quarter is:
//
//   - of codes of 4 or 5 bits, first the low four bits, [32 lanes][4 steps] words: register r's are at bits 4r and
//     16+4r, halves 0 and 1. With lookups by byte they are at nibbles e/2·4 + e%2·2 + h instead; with signs apart the
//     highest bits of registers 0 to 3 are at 15, 12, 13 and 14 of a half, and the others from 6, 3, 0 and 9 on;
//   - of 5 bits, then [32 lanes] words: the high bits are at bits half·16 + step·4 + register;
//   - of 6 bits, [32 lanes][4 steps] words with the codes of registers 0 and 1 at bits half·16 + register·6 and the low
//     four bits of register 3's at half·16 + 12, then [32 lanes][2] words for steps 2w and 2w+1: register 2's code at
//     half·16 + step%2·6, the high two bits of register 3's at half·16 + 12 + step%2·2;
//   - of 8 bits, [2][32 lanes][2 steps][2] words: register r's are bytes r%2 and 2+r%2 of word r/2.
//
// Codes and scales of rows and columns past the last are zero bytes.

// nibbleOrder is where words of a quarter have the low four bits of codes.
type nibbleOrder uint8

const (
	byRegister nibbleOrder = iota
	forLookups
	signsApart
)

// brick is how bricks of a format are made.
type brick struct {
	columns    int // of a brick: 64, 128 or 256
	bits       int // of a code: 4, 5, 6 or 8
	order      nibbleOrder
	scaleBytes int
	code       func(row []byte, column int) byte
	// scales writes the scales of one of the 16 rows. blocks are those of the row that the brick covers; at the end of
	// a row one of two may be missing.
	scales func(to []byte, row int, blocks []byte)
}

// bricks holds the brick of each quantised format.
var bricks = [...]brick{
	Q4_0: {columns: 64, bits: 4, scaleBytes: 64, code: nibbleOf(18, 2), scales: halves(18)},
	Q4_1: {columns: 64, bits: 4, scaleBytes: 128, code: nibbleOf(20, 4), scales: halvesAndMinimums(20)},
	Q5_0: {columns: 64, bits: 5, scaleBytes: 64, code: fiveBitsOf(22, 2), scales: halves(22)},
	Q5_1: {columns: 64, bits: 5, scaleBytes: 128, code: fiveBitsOf(24, 4), scales: halvesAndMinimums(24)},
	Q8_0: {columns: 64, bits: 8, scaleBytes: 64, code: codeQ8_0, scales: halves(34)},

	Q4_K:   {columns: 256, bits: 4, scaleBytes: 320, code: codeQ4_K, scales: scalesOfK},
	Q5_K:   {columns: 256, bits: 5, scaleBytes: 320, code: codeQ5_K, scales: scalesOfK},
	Q6_K:   {columns: 256, bits: 6, scaleBytes: 288, code: codeQ6_K, scales: scalesOfQ6_K},
	IQ4_XS: {columns: 256, bits: 4, order: forLookups, scaleBytes: 160, code: codeIQ4_XS, scales: scalesOfIQ4_XS},
	MXFP4:  {columns: 64, bits: 4, order: signsApart, scaleBytes: 32, code: nibbleOf(17, 1), scales: exponents},

	F8:     {columns: 128, bits: 8, scaleBytes: 64, code: codeF8, scales: scalesOfF8},
	G4_32:  {columns: 64, bits: 4, scaleBytes: 160, code: codeG4(32), scales: scalesAndZeros(32, 2)},
	G4_64:  {columns: 64, bits: 4, scaleBytes: 80, code: codeG4(64), scales: scalesAndZeros(64, 1)},
	G4_128: {columns: 128, bits: 4, scaleBytes: 80, code: codeG4(128), scales: scalesAndZeros(128, 1)},
}

// usualFormats are those with kernels of all kinds (REEL_USUAL_FORMATS in gemm/formats.cuh): prompts by stream-K, and
// tagged values.
var usualFormats = []DType{Q4_0, Q8_0, Q4_K, Q5_K, Q6_K, F8, G4_128}

// quarterColumns is the columns of a quarter of a brick.
const quarterColumns = 64

// quarterBytes returns the size of the codes of 16 rows and 64 columns.
func (b *brick) quarterBytes() int { return tileRows * quarterColumns * b.bits / 8 }

func (b *brick) bytes() int { return b.columns/quarterColumns*b.quarterBytes() + b.scaleBytes }

// parts returns a brick's codes and its scales. The scales of two quarters come first (gemm/formats.cuh).
func (b *brick) parts(one []byte) (codes, scales []byte) {
	if b.columns == 2*quarterColumns {
		return one[b.scaleBytes:], one[:b.scaleBytes]
	}
	return one[:len(one)-b.scaleBytes], one[len(one)-b.scaleBytes:]
}

// count returns how many bricks a row tile of cols columns has.
func (b *brick) count(cols int) int { return (cols + b.columns - 1) / b.columns }

// put stores a code of a quarter that holds zeros.
func (b *brick) put(quarter []byte, row, column int, code byte) {
	step, e, h := column/tileCols, column%4, row/8
	lane, register, half := row%8*4+column%tileCols/4, e/2*2+h, e%2
	if b.bits == 8 {
		quarter[step/2*512+lane*16+step%2*8+e/2*4+half*2+h] = code
		return
	}
	if b.bits == 6 {
		putSix(quarter, lane, step, register, half, code)
		return
	}
	nibble := register + 4*half
	switch b.order {
	case forLookups:
		nibble = e/2*4 + half*2 + h
	case signsApart:
		putSignApart(quarter[lane*16+step*4+half*2:], register, code)
		return
	}
	quarter[lane*16+step*4+nibble/2] |= code & 15 << (nibble % 2 * 4)
	if bit := half*16 + step*4 + register; b.bits == 5 {
		quarter[512+lane*4+bit/8] |= code >> 4 << (bit % 8)
	}
}

// putSignApart stores a code in a half of a word.
func putSignApart(half []byte, register int, code byte) {
	sign, rest := [...]int{15, 12, 13, 14}[register], [...]int{6, 3, 0, 9}[register]
	bits := binary.LittleEndian.Uint16(half) | uint16(code)>>3<<sign | uint16(code)&7<<rest
	binary.LittleEndian.PutUint16(half, bits)
}

// putSix stores a code of six bits.
func putSix(quarter []byte, lane, step, register, half int, code byte) {
	or := func(at, bit int, bits byte) {
		word := binary.LittleEndian.Uint32(quarter[at:])
		binary.LittleEndian.PutUint32(quarter[at:], word|uint32(bits)<<(half*16+bit))
	}
	word, high := lane*16+step*4, 512+lane*8+step/2*4
	switch register {
	case 2:
		or(high, step%2*6, code)
	case 3:
		or(word, 12, code&15)
		or(high, 12+step%2*2, code>>4)
	default:
		or(word, register*6, code)
	}
}

// pack writes the bricks of 16 rows, of which some may be missing, to a buffer of zeros.
func (b *brick) pack(to []byte, rows [][]byte, cols int, f *format) {
	for first := 0; first < cols; first += b.columns {
		codes, scales := b.parts(to[first/b.columns*b.bytes():][:b.bytes()])
		n := min(b.columns, cols-first)
		for r, row := range rows {
			for c := range n {
				b.put(codes[c/quarterColumns*b.quarterBytes():], r, c%quarterColumns, b.code(row, first+c))
			}
			blocks := row[first/f.blockElements*f.blockBytes:][:n/f.blockElements*f.blockBytes]
			b.scales(scales, r, blocks)
		}
	}
}

// nibbleOf returns code for blocks of 32 codes, the first 16 in the low four bits of the bytes from `codes` on.
func nibbleOf(blockBytes, codes int) func(row []byte, column int) byte {
	return func(row []byte, column int) byte {
		return row[column/32*blockBytes+codes+column%16] >> (column % 32 / 16 * 4) & 15
	}
}

// fiveBitsOf returns code for such blocks that have the codes' highest bits in the four bytes before.
func fiveBitsOf(blockBytes, high int) func(row []byte, column int) byte {
	low := nibbleOf(blockBytes, high+4)
	return func(row []byte, column int) byte {
		bits := binary.LittleEndian.Uint32(row[column/32*blockBytes+high:])
		return low(row, column) | byte(bits>>(column%32)&1)<<4
	}
}

func codeQ8_0(row []byte, column int) byte { return row[column/32*34+2+column%32] }

func codeQ4_K(row []byte, column int) byte { return kNibble(row[column/256*144+16:], column%256) }

func codeQ5_K(row []byte, column int) byte {
	block := row[column/256*176:]
	return kNibble(block[48:], column%256) | block[16+column%32]>>(column%256/32)&1<<4
}

// kNibble returns the low bits of a code in a block of Q4_K or Q5_K.
func kNibble(codes []byte, column int) byte {
	return codes[column/64*32+column%32] >> (column / 32 % 2 * 4) & 15
}

func codeQ6_K(row []byte, column int) byte {
	block := row[column/256*210:]
	n, k, j := column%256/128, column%128/32, column%32
	return block[64*n+k%2*32+j]>>(k/2*4)&15 | block[128+32*n+j]>>(2*k)&3<<4
}

func codeIQ4_XS(row []byte, column int) byte {
	return row[column/256*136+8+column%256/32*16+column%16] >> (column % 32 / 16 * 4) & 15
}

func codeF8(row []byte, column int) byte { return row[column/128*132+4+column%128] }

// codeG4 returns code for blocks of n codes.
func codeG4(n int) func(row []byte, column int) byte {
	return func(row []byte, column int) byte {
		return row[column/n*(5+n/2)+5+column%n/32*16+column%16] >> (column % 32 / 16 * 4) & 15
	}
}

// Scales are ordered by the row's remainder i by 8, then mostly by group, then by row half h, so that one load brings
// a lane those of its two rows.

// halves writes binary16 [8 i][2 groups][2 h], the scales of blocks of 32.
func halves(blockBytes int) func(to []byte, row int, blocks []byte) {
	return func(to []byte, row int, blocks []byte) {
		for g := 0; len(blocks) > 0; g, blocks = g+1, blocks[blockBytes:] {
			copy(to[row%8*8+g*4+row/8*2:], blocks[:2])
		}
	}
}

// halvesAndMinimums writes binary16 [8 i][scale, minimum][2 groups][2 h].
func halvesAndMinimums(blockBytes int) func(to []byte, row int, blocks []byte) {
	return func(to []byte, row int, blocks []byte) {
		for g := 0; len(blocks) > 0; g, blocks = g+1, blocks[blockBytes:] {
			at := row%8*16 + g*4 + row/8*2
			copy(to[at:], blocks[:2])
			copy(to[at+8:], blocks[2:4])
		}
	}
}

// exponents writes bytes [8 i][2 groups][2 h].
func exponents(to []byte, row int, blocks []byte) {
	for g := 0; len(blocks) > 0; g, blocks = g+1, blocks[17:] {
		to[row%8*4+g*2+row/8] = blocks[0]
	}
}

// scalesOfK writes, for Q4_K and Q5_K, bytes [8 i][2 h][8 groups] of scales, bytes [8 i][4 pairs of groups][2 h][2] of
// minimums, an A operand of mma, and binary16 [8 i][2 h][d, dmin].
func scalesOfK(to []byte, row int, block []byte) {
	i, h := row%8, row/8
	for g := range 8 {
		scale, minimum := scaleAndMin(block[4:16], g)
		to[i*16+h*8+g] = byte(scale)
		to[128+i*16+g/2*4+h*2+g%2] = byte(minimum)
	}
	copy(to[256+i*8+h*4:], block[:4])
}

// scalesOfQ6_K writes bytes [8 i][2 h][16 groups] and binary16 [8 i][2 h].
func scalesOfQ6_K(to []byte, row int, block []byte) {
	copy(to[row%8*32+row/8*16:], block[192:208])
	copy(to[256+row%8*4+row/8*2:], block[208:210])
}

// scalesOfIQ4_XS writes signed bytes [8 i][2 h][8 groups] and binary16 [8 i][2 h].
func scalesOfIQ4_XS(to []byte, row int, block []byte) {
	for g := range 8 {
		to[row%8*16+row/8*8+g] = byte(scaleIQ4_XS(block, g))
	}
	copy(to[128+row%8*4+row/8*2:], block[:2])
}

// nanBits is a float32 that is not a number.
const nanBits = 0x7fffffff

// scalesOfF8 writes float32 [8 i][2 h]. Kernels have no NaN among codes: a block with one has NaN as scale.
func scalesOfF8(to []byte, row int, block []byte) {
	scale := binary.LittleEndian.Uint32(block)
	for _, code := range block[4:] {
		if code&127 == 127 {
			scale = nanBits
		}
	}
	binary.LittleEndian.PutUint32(to[row%8*8+row/8*4:], scale)
}

// scalesAndZeros writes float32 [groups][8 i][2 h], then the zeros, bytes [groups][8 i][2 h], of blocks of n codes.
func scalesAndZeros(n, groups int) func(to []byte, row int, blocks []byte) {
	return func(to []byte, row int, blocks []byte) {
		for g := 0; len(blocks) > 0; g, blocks = g+1, blocks[5+n/2:] {
			at := g*tileRows + row%8*2 + row/8
			copy(to[4*at:], blocks[:4])
			to[groups*tileRows*4+at] = blocks[4]
		}
	}
}
