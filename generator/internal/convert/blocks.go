package convert

import (
	"encoding/binary"
	"math"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
)

// format is a block format to convert to.
type format struct {
	encode func(block []byte, x []float32) // writes one block, zeroed before
	values kernels.DType                   // the format whose decoder reads the blocks back
}

// formats are the formats that a file's matrices may get. In each product that is added, float32(…) keeps the compiler
// from fusing the two: blocks are the same on every machine. (ggml, ggml-quants.c: the functions that end in _ref,
// compiled without fused multiply-add; Q8_0 and Q4_0 are those of Python's package gguf.)
var formats = map[weights.DType]format{
	weights.F32:  {encodeF32, kernels.F32},
	weights.F16:  {encodeF16, kernels.F16},
	weights.Q8_0: {encodeQ8_0, kernels.Q8_0},
	weights.Q4_0: {encodeQ4_0, kernels.Q4_0},
	weights.Q5_0: {encodeQ5_0, kernels.Q5_0},
	weights.Q5_1: {encodeQ5_1, kernels.Q5_1},
	weights.Q4_K: {encodeQ4_K, kernels.Q4_K},
	weights.Q5_K: {encodeQ5_K, kernels.Q5_K},
	weights.Q6_K: {encodeQ6_K, kernels.Q6_K},
}

// encode writes x, which is whole blocks, to out.
func encode(out []byte, d weights.DType, x []float32) {
	elements, bytes := d.Block()
	clear(out)
	for ; len(x) > 0; x, out = x[elements:], out[bytes:] {
		formats[d].encode(out[:bytes], x[:elements])
	}
}

func encodeF32(block []byte, x []float32) {
	binary.LittleEndian.PutUint32(block, math.Float32bits(x[0]))
}

func encodeF16(block []byte, x []float32) { putHalf(block, x[0]) }

// putHalf writes v as binary16.
func putHalf(b []byte, v float32) { binary.LittleEndian.PutUint16(b, half(v)) }

// halfValue returns the value of a binary16.
func halfValue(b []byte) float32 { return kernels.Float16(binary.LittleEndian.Uint16(b)) }

// half returns the IEEE 754 binary16 nearest to v, ties to even. v is a number.
func half(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, rest := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case rest >= 0x47800000: // from 2^16 on
		return sign | 0x7c00
	case rest < 0x38800000: // below 2^-14: a multiple of 2^-24; adding 1/2 rounds to one
		return sign | uint16(math.Float32bits(math.Float32frombits(rest)+0.5)-0x3f000000)
	}
	return sign | uint16((rest-0x38000000+0xfff+rest>>13&1)>>13) // a carry goes into the exponent
}

// nearest returns the integer nearest to v, ties to even, if it is below 2^22. Other numbers give other integers, the
// same as the reference's: adding 1.5·2^23 leaves the integer in the low bits.
func nearest(v float32) int {
	return int(math.Float32bits(float32(v)+12582912)&0x7fffff) - 0x400000
}

// extreme returns the first element of x with the largest absolute value.
func extreme(x []float32) float32 {
	v := x[0]
	for _, e := range x {
		if abs(e) > abs(v) {
			v = e
		}
	}
	return v
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// inverse returns 1/d, or 0 for 0.
func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}
