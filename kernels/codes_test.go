package kernels

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"reel.internal/reel/kernels/device"
)

// unpackQuarter returns the codes [16 rows][64 columns] of a quarter, register by register as kernels take them
// (kernels/gemm/formats.cuh).
func unpackQuarter(quarter []byte, bits int, order nibbleOrder) (codes [16][64]int) {
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(quarter[at:]) }
	for lane := range 32 {
		for step := range 4 {
			var registers [4]uint32 // of an A operand: two codes of 16 bits each
			low := word(lane*16 + step%4*4)
			for r := range registers {
				switch {
				case bits == 8:
					registers[r] = word(step/2*512+lane*16+step%2*8+r/2*4) >> (r % 2 * 8) & 0x00ff00ff
				case order == signsApart:
					signs, rest := low>>[...]int{15, 12, 13, 14}[r], low>>[...]int{6, 3, 0, 9}[r]
					registers[r] = signs&0x00010001<<3 | rest&0x00070007
				case order == forLookups: // eight bytes, of which a register takes every second
					half := low >> (r / 2 * 16)
					registers[r] = half>>(r%2*4)&15 | half>>(r%2*4+8)&15<<16
				case bits == 6:
					high := word(512 + lane*8 + step/2*4)
					registers[r] = [...]uint32{low, low >> 6, high >> (step % 2 * 6)}[min(r, 2)] & 0x003f003f
					if r == 3 {
						registers[r] = low>>12&0x000f000f | high>>(12+step%2*2)&0x00030003<<4
					}
				default:
					registers[r] = low >> (4 * r) & 0x000f000f
				}
				if bits == 5 {
					registers[r] |= word(512+lane*4) >> (4*step + r) & 0x00010001 << 4
				}
				row, column := lane/4+r%2*8, step*16+lane%4*4+r/2*2
				codes[row][column], codes[row][column+1] = int(registers[r]&0xffff), int(registers[r]>>16)
			}
		}
	}
	return codes
}

// codesOf holds how kernels read the values of a format: value returns that of a code of row and column in a brick,
// whose scales are s.
var codesOf = map[DType]func(s []byte, row, column, code int) float32{
	Q4_0: func(s []byte, r, c, code int) float32 { return halfAt(s, r, c, 8, 0) * float32(code-8) },
	Q4_1: func(s []byte, r, c, code int) float32 {
		return float32(halfAt(s, r, c, 16, 0)*float32(code)) + halfAt(s, r, c, 16, 8)
	},
	Q5_0: func(s []byte, r, c, code int) float32 { return halfAt(s, r, c, 8, 0) * float32(code-16) },
	Q5_1: func(s []byte, r, c, code int) float32 {
		return float32(halfAt(s, r, c, 16, 0)*float32(code)) + halfAt(s, r, c, 16, 8)
	},
	Q8_0: func(s []byte, r, c, code int) float32 { return halfAt(s, r, c, 8, 0) * float32(int8(code)) },
	Q4_K: valueOfK,
	Q5_K: valueOfK,
	Q6_K: func(s []byte, r, c, code int) float32 {
		scale := half(s[256+r%8*4+r/8*2:]) * float32(int8(s[r%8*32+r/8*16+c/16]))
		return scale * float32(code-32)
	},
	IQ4_XS: func(s []byte, r, c, code int) float32 {
		return half(s[128+r%8*4+r/8*2:]) * float32(int8(s[r%8*16+r/8*8+c/32])) * iq4Values[code]
	},
	MXFP4: func(s []byte, r, c, code int) float32 {
		return float32(math.Ldexp(1, int(s[r%8*4+c/32*2+r/8])-128)) * fp4Values[code]
	},
	F8: func(s []byte, r, _, code int) float32 { return floatAt(s, r, 0) * e4m3[code] },
	G4_32: func(s []byte, r, c, code int) float32 {
		return floatAt(s, r, c/32) * float32(code-int(s[128+c/32*16+r%8*2+r/8]))
	},
	G4_64:  func(s []byte, r, _, code int) float32 { return floatAt(s, r, 0) * float32(code-int(s[64+r%8*2+r/8])) },
	G4_128: func(s []byte, r, _, code int) float32 { return floatAt(s, r, 0) * float32(code-int(s[64+r%8*2+r/8])) },
}

// halfAt returns the binary16 of row r and the group of 32 that has column c, of `each` bytes for two rows.
func halfAt(s []byte, r, c, each, from int) float32 { return half(s[r%8*each+from+c/32*4+r/8*2:]) }

// floatAt returns the float32 of row r and group g.
func floatAt(s []byte, r, g int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(s[g*64+r%8*8+r/8*4:]))
}

func valueOfK(s []byte, r, c, code int) float32 {
	g, d := c/32, s[256+r%8*8+r/8*4:]
	scale := half(d) * float32(s[r%8*16+r/8*8+g])
	minimum := half(d[2:]) * float32(s[128+r%8*16+g/2*4+r/8*2+g%2])
	return float32(scale*float32(code)) - minimum
}

// unpack returns the values [tiles*16][bricks*columns] of a weight in the layout Codes.
func unpack(d DType, packed []byte, rows, cols int) [][]float32 {
	b := &bricks[d]
	values := make([][]float32, tilesOf(rows)*tileRows)
	for r := range values {
		values[r] = make([]float32, b.count(cols)*b.columns)
	}
	for i := 0; len(packed) > 0; i, packed = i+1, packed[b.bytes():] {
		tile, first := i/b.count(cols)*tileRows, i%b.count(cols)*b.columns
		all, scales := b.parts(packed[:b.bytes()])
		for c := range b.columns {
			codes := unpackQuarter(all[c/64*b.quarterBytes():], b.bits, b.order)
			for r := range tileRows {
				values[tile+r][first+c] = codesOf[d](scales, r, c, codes[r][c%64])
			}
		}
	}
	return values
}

// A weight in the layout Codes has the values of its blocks bit for bit, with any bytes, and NaN where they have.
// Codes and scales past the weight's end are zero.
func TestCodesHoldTheValuesOfBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 24))
	h := device.NewHost(device.HostOptions{Workers: 2})
	defer h.Close()
	for _, d := range slices.Concat(quantisedFormats, hfFormats) {
		for _, c := range [][2]int{{16, 256}, {21, 512}, {1, 256 + formats[d].blockElements}} {
			rows, cols := c[0], c[1]
			data := make([]byte, d.Bytes(int64(rows*cols)))
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			tameCodes(d, data)
			src, _ := h.Load(slices.Clone(data))
			dst, _ := h.Alloc(PackedBytes(d, rows, cols))
			for i := range h.Bytes(dst) {
				h.Bytes(dst)[i] = 0xff
			}
			o := Pack{Src: src, Dst: dst, DType: d, Rows: rows, Cols: cols}
			if err := o.Check(); err != nil {
				t.Fatal(err)
			}
			o.Host(h)
			checkCodes(t, d, unpack(d, h.Bytes(dst), rows, cols), data, rows, cols)
		}
	}
}

// tameCodes removes bytes that a decoder does not expect.
func tameCodes(d DType, data []byte) {
	f := formats[d]
	for at := 0; at < len(data); at += f.blockBytes {
		switch d {
		case F8: // a NaN among codes makes the block NaN
			for i := at + 4; i < at+f.blockBytes; i++ {
				data[i] &^= 8
			}
		case G4_32, G4_64, G4_128:
			data[at+4] &= 15
		}
	}
}

func checkCodes(t *testing.T, d DType, got [][]float32, data []byte, rows, cols int) {
	t.Helper()
	for row := rows; row < len(got); row++ {
		if slices.Max(got[row]) != 0 || slices.Min(got[row]) != 0 {
			t.Fatalf("format %d: row %d of %d is %v, wants 0", d, row, rows, got[row])
		}
	}
	for row := range rows {
		want := make([]float32, cols)
		n := d.Bytes(int64(cols))
		formats[d].decode(want, data[int64(row)*n:][:n])
		for c, w := range want {
			if g := got[row][c]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
				t.Fatalf("format %d: row %d, column %d of [%d][%d] is %v, wants %v", d, row, c, rows, cols, g, w)
			}
		}
		for c, g := range got[row][cols:] {
			if g != 0 {
				t.Fatalf("format %d: column %d of %d is %v, wants 0", d, cols+c, cols, g)
			}
		}
	}
}

// A code of E4M3 that is not a number makes its block one.
func TestCodesKeepNaN(t *testing.T) {
	block, to := make([]byte, 132), make([]byte, 64)
	scalesOfF8(to, 9, block)
	if v := floatAt(to, 9, 0); v != 0 {
		t.Errorf("scale %v, wants 0", v)
	}
	block[100] = 0xff
	scalesOfF8(to, 9, block)
	if v := floatAt(to, 9, 0); v == v {
		t.Errorf("scale %v, wants NaN", v)
	}
}

// Bricks have the sizes that formats.cuh asserts, at most 3% more than blocks.
func TestBrickSizes(t *testing.T) {
	for _, d := range slices.Concat(quantisedFormats, hfFormats) {
		b := &bricks[d]
		if b.bytes()%16 != 0 {
			t.Errorf("format %d: %d bytes, wants a multiple of 16", d, b.bytes())
		}
		if file := float64(d.Bytes(int64(tileRows * b.columns))); float64(b.bytes()) > 1.03*file {
			t.Errorf("format %d: %d bytes, blocks have %v", d, b.bytes(), file)
		}
	}
}

func TestPackRefusesQuantisedShapes(t *testing.T) {
	for _, c := range []struct {
		d    DType
		cols int
	}{{Q4_0, 48}, {Q4_K, 128}, {F8, 64}, {G4_128, 64}} {
		if err := CheckPackable(c.d, 16, c.cols); !errors.Is(err, device.ErrBadShape) {
			t.Errorf("format %d of %d columns: %v, wants ErrBadShape", c.d, c.cols, err)
		}
	}
}
