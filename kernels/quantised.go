package kernels

import (
	"encoding/binary"
	"math"
)

// The decoders of quantised formats. A block keeps its scales, as binary16, beside its codes. Each value is computed
// and rounded in the reference's order. (ggml: ggml-common.h has the layouts; dequantize in Python's package gguf is
// the reference.)

// decodeQ4_0 writes d·(code − 8). A block is d, then 16 bytes: the low four bits of byte j are code j, the high ones
// code j+16.
func decodeQ4_0(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[32:], row[18:] {
		d := half(row)
		for j, b := range row[2:18] {
			y[j] = d * float32(int(b&15)-8)
			y[j+16] = d * float32(int(b>>4)-8)
		}
	}
}

// decodeQ4_1 writes d·code + m. A block is d, m, then codes as in Q4_0.
func decodeQ4_1(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[32:], row[20:] {
		d, m := half(row), half(row[2:])
		for j, b := range row[4:20] {
			y[j] = float32(d*float32(b&15)) + m
			y[j+16] = float32(d*float32(b>>4)) + m
		}
	}
}

// decodeQ5_0 writes d·(code − 16). A block is d, 32 bits, then codes as in Q4_0. Bit j is the highest of code j.
func decodeQ5_0(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[32:], row[22:] {
		d, high := half(row), binary.LittleEndian.Uint32(row[2:])
		for j, b := range row[6:22] {
			y[j] = d * float32(int(b&15)+int(high>>j&1)<<4-16)
			y[j+16] = d * float32(int(b>>4)+int(high>>(j+16)&1)<<4-16)
		}
	}
}

// decodeQ5_1 writes d·code + m. A block is d, m, then the rest of Q5_0.
func decodeQ5_1(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[32:], row[24:] {
		d, m, high := half(row), half(row[2:]), binary.LittleEndian.Uint32(row[4:])
		for j, b := range row[8:24] {
			y[j] = float32(d*float32(int(b&15)+int(high>>j&1)<<4)) + m
			y[j+16] = float32(d*float32(int(b>>4)+int(high>>(j+16)&1)<<4)) + m
		}
	}
}

// decodeQ8_0 writes d·code. A block is d, then 32 codes of a signed byte.
func decodeQ8_0(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[32:], row[34:] {
		d := half(row)
		for j, b := range row[2:34] {
			y[j] = d * float32(int8(b))
		}
	}
}

// scaleAndMin returns the 6-bit scale and minimum of group g, one of 8, from the 12 bytes that hold them.
func scaleAndMin(s []byte, g int) (scale, minimum float32) {
	if g < 4 {
		return float32(s[g] & 63), float32(s[g+4] & 63)
	}
	return float32(s[g+4]&15 | s[g-4]>>6<<4), float32(s[g+4]>>4 | s[g]>>6<<4)
}

// decodeQ4_K writes d·scale·code − dmin·minimum. A block is d, dmin, 12 bytes of scales, then 32 bytes for each two
// of 8 groups: the low four bits of their codes, then the high ones.
func decodeQ4_K(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[256:], row[144:] {
		decodeGroups(y, row, nil, row[16:144])
	}
}

// decodeQ5_K writes the same as decodeQ4_K. Between scales and codes are 32 bytes; bit g of byte j is the highest of
// code j of group g.
func decodeQ5_K(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[256:], row[176:] {
		decodeGroups(y, row, row[16:48], row[48:176])
	}
}

// decodeGroups decodes a block of Q4_K, or of Q5_K if high is not nil. row begins with d, dmin and the scales.
func decodeGroups(y []float32, row, high, low []byte) {
	d, dmin := half(row), half(row[2:])
	for g := range 8 {
		scale, minimum := scaleAndMin(row[4:16], g)
		scale, minimum = d*scale, dmin*minimum
		codes, values, shift := (*[32]byte)(low[g/2*32:]), (*[32]float32)(y[32*g:]), g%2*4
		if high == nil {
			for j, b := range codes {
				values[j] = float32(scale*float32(int32(b>>shift&15))) - minimum
			}
			continue
		}
		bits := (*[32]byte)(high)
		for j, b := range codes {
			values[j] = float32(scale*float32(int32(b>>shift&15|bits[j]>>g&1<<4))) - minimum
		}
	}
}

// decodeQ6_K writes d·scale·(code − 32). A block is 128 bytes of low bits, 64 of high bits, 16 scales of a signed
// byte, and d. In each half of 128 codes, code 32·k+j has its low bits in byte j or j+32 for even or odd k, in the
// low four bits for k < 2, and its two high bits in byte j, from bit 2·k on.
func decodeQ6_K(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[256:], row[210:] {
		d := half(row[208:])
		for g := range 16 { // of 16 codes, which have a scale
			n, k, j := g/8, g/2%4, g%2*16
			low, high := (*[16]byte)(row[64*n+k%2*32+j:]), (*[16]byte)(row[128+32*n+j:])
			values, scale := (*[16]float32)(y[16*g:]), d*float32(int8(row[192+g]))
			for i := range values {
				code := low[i]>>(k/2*4)&15 | high[i]>>(2*k)&3<<4
				values[i] = scale * float32(int32(code)-32)
			}
		}
	}
}

// iq4Values are the values of the codes of IQ4_XS.
var iq4Values = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// scaleIQ4_XS returns the scale of group g, one of 8, of a block of IQ4_XS.
func scaleIQ4_XS(block []byte, g int) int8 {
	high := binary.LittleEndian.Uint16(block[2:])
	return int8(block[4+g/2]>>(g%2*4)&15|byte(high>>(2*g)&3)<<4) - 32
}

// decodeIQ4_XS writes d·scale·value. A block is d, 16 bits with the two high bits of each of 8 scales, four bytes with
// their low bits, then 16 bytes for each group of 32 as in Q4_0. The scales' bits are those of scale + 32.
func decodeIQ4_XS(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[256:], row[136:] {
		d := half(row)
		for g := range 8 {
			scaled := d * float32(scaleIQ4_XS(row, g))
			for j, b := range row[8+16*g:][:16] {
				y[32*g+j] = scaled * iq4Values[b&15]
				y[32*g+j+16] = scaled * iq4Values[b>>4]
			}
		}
	}
}

// fp4Values are the values of E2M1, times two.
var fp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// decodeMXFP4 writes 2^(e−128)·value. A block is the byte e, then codes as in Q4_0. (OCP Microscaling Formats, 2023.)
func decodeMXFP4(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[32:], row[17:] {
		d := float32(math.Ldexp(1, int(row[0])-128))
		for j, b := range row[1:17] {
			y[j] = d * fp4Values[b&15]
			y[j+16] = d * fp4Values[b>>4]
		}
	}
}

// half returns the binary16 at the begin of b.
func half(b []byte) float32 { return Float16(binary.LittleEndian.Uint16(b)) }
