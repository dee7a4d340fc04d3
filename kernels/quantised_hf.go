package kernels

import (
	"encoding/binary"
	"math"
)

// The decoders of formats that Hugging Face checkpoints become at load. Their scales are float32, which holds those of
// every checkpoint exactly, so a value is rounded at most once.

// e4m3 holds the values of E4M3 by their codes: a sign, four bits of exponent with the bias 7, three of fraction. It
// has no infinity; 0x7f and 0xff are NaN. (OCP 8-bit Floating Point Specification, 2023.)
var e4m3 = func() (values [256]float32) {
	for code := range values {
		exponent, fraction := code>>3&15, code&7
		v := float32(math.Ldexp(float64(8+fraction), exponent-10))
		if exponent == 0 {
			v = float32(math.Ldexp(float64(fraction), -9))
		}
		if code&127 == 127 {
			v = float32(math.NaN())
		}
		values[code] = float32(math.Copysign(float64(v), float64(1-code>>7*2)))
	}
	return values
}()

// decodeF8 writes scale·value. A block is the scale, 4 bytes, then 128 codes of E4M3.
func decodeF8(y []float32, row []byte) {
	for ; len(y) > 0; y, row = y[128:], row[132:] {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(row))
		for j, code := range (*[128]byte)(row[4:]) {
			y[j] = scale * e4m3[code]
		}
	}
}

func decodeG4_32(y []float32, row []byte)  { decodeG4(y, row, 32) }
func decodeG4_64(y []float32, row []byte)  { decodeG4(y, row, 64) }
func decodeG4_128(y []float32, row []byte) { decodeG4(y, row, 128) }

// decodeG4 writes scale·(code − zero). A block of n elements is the scale, 4 bytes; zero, a byte from 0 to 15; then 16
// bytes for each 32 codes: the low four bits of byte j are code j, the high ones code j+16, as in Q4_0.
func decodeG4(y []float32, row []byte, n int) {
	for ; len(y) > 0; y, row = y[n:], row[5+n/2:] {
		scale, zero := math.Float32frombits(binary.LittleEndian.Uint32(row)), int32(row[4])
		for at := 0; at < n; at += 32 {
			values := (*[32]float32)(y[at:])
			for j, b := range (*[16]byte)(row[5+at/2:]) {
				values[j] = scale * float32(int32(b&15)-zero)
				values[j+16] = scale * float32(int32(b>>4)-zero)
			}
		}
	}
}
