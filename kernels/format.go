package kernels

import (
	"encoding/binary"
	"math"

	"reel.internal/reel/kernels/vec"
)

// DType is the format of a weight's elements, and of keys and values.
type DType uint8

// The formats. Their numbers are those of kvType in the .cu files.
const (
	BF16 DType = iota + 1
	F32
	F16
	// Those that follow are quantised, and for weights only.
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q4_K
	Q5_K
	Q6_K
	IQ4_XS
	MXFP4
	// Hugging Face's formats, whose scales are in tensors of their own, have them in the blocks here: package model
	// converts them at load. Blocks of MXFP4 are those of GGUF.
	F8
	G4_32
	G4_64
	G4_128
)

// format describes a DType. A row of a weight is whole blocks of blockElements elements in
// blockBytes bytes, little-endian. A floating-point block is one element; a quantised block
// keeps its scales beside its codes. A GPU has quantised weights in the layout [Codes], with a brick of each format.
type format struct {
	blockElements, blockBytes int
	decode                    func(y []float32, row []byte)       // writes the values of whole blocks to y, in Go
	loops                     *vec.Quantised                      // in assembly; nil: none
	packed                    DType                               // its format on a GPU; 0: a GPU has no kernels
	pack                      func(row []byte, column int) uint16 // the bits of an element in the layout Fragments
	kernel                    string                              // names kernels over weights packed from it
}

// formats holds each DType's format; DType 0 is F32.
var formats = [...]format{
	0:    float32Format,
	F32:  float32Format,
	BF16: {blockElements: 1, blockBytes: 2, decode: decodeBF16, loops: &vec.RowBF16, packed: BF16, pack: sameBits, kernel: "_bf16"},
	F16:  {blockElements: 1, blockBytes: 2, decode: decodeF16, loops: &vec.RowF16, packed: F16, pack: sameBits, kernel: "_f16"},

	Q4_0:   {blockElements: 32, blockBytes: 18, decode: decodeQ4_0, loops: &vec.Q4_0, packed: Q4_0, kernel: "_q4_0"},
	Q4_1:   {blockElements: 32, blockBytes: 20, decode: decodeQ4_1, loops: &vec.Q4_1, packed: Q4_1, kernel: "_q4_1"},
	Q5_0:   {blockElements: 32, blockBytes: 22, decode: decodeQ5_0, loops: &vec.Q5_0, packed: Q5_0, kernel: "_q5_0"},
	Q5_1:   {blockElements: 32, blockBytes: 24, decode: decodeQ5_1, loops: &vec.Q5_1, packed: Q5_1, kernel: "_q5_1"},
	Q8_0:   {blockElements: 32, blockBytes: 34, decode: decodeQ8_0, loops: &vec.Q8_0, packed: Q8_0, kernel: "_q8_0"},
	Q4_K:   {blockElements: 256, blockBytes: 144, decode: decodeQ4_K, loops: &vec.Q4_K, packed: Q4_K, kernel: "_q4_k"},
	Q5_K:   {blockElements: 256, blockBytes: 176, decode: decodeQ5_K, loops: &vec.Q5_K, packed: Q5_K, kernel: "_q5_k"},
	Q6_K:   {blockElements: 256, blockBytes: 210, decode: decodeQ6_K, loops: &vec.Q6_K, packed: Q6_K, kernel: "_q6_k"},
	IQ4_XS: {blockElements: 256, blockBytes: 136, decode: decodeIQ4_XS, loops: &vec.IQ4_XS, packed: IQ4_XS, kernel: "_iq4_xs"},
	MXFP4:  {blockElements: 32, blockBytes: 17, decode: decodeMXFP4, loops: &vec.MXFP4, packed: MXFP4, kernel: "_mxfp4"},

	F8:     {blockElements: 128, blockBytes: 132, decode: decodeF8, loops: &vec.F8, packed: F8, kernel: "_f8"},
	G4_32:  {blockElements: 32, blockBytes: 21, decode: decodeG4_32, loops: &vec.G4_32, packed: G4_32, kernel: "_g4_32"},
	G4_64:  {blockElements: 64, blockBytes: 37, decode: decodeG4_64, loops: &vec.G4_64, packed: G4_64, kernel: "_g4_64"},
	G4_128: {blockElements: 128, blockBytes: 69, decode: decodeG4_128, loops: &vec.G4_128, packed: G4_128, kernel: "_g4_128"},
}

var float32Format = format{
	blockElements: 1, blockBytes: 4, decode: decodeF32, packed: BF16, pack: roundedBits, kernel: "_bf16",
}

// values writes the values of whole blocks to y.
func (f *format) values(y []float32, row []byte) {
	if f.loops == nil || !f.loops.Decode(y, row) {
		f.decode(y, row)
	}
}

// Bytes returns the size of n elements, which are whole blocks.
func (d DType) Bytes(n int64) int64 {
	f := &formats[d]
	return n / int64(f.blockElements) * int64(f.blockBytes)
}

// Decode writes the values of whole blocks to y.
func (d DType) Decode(y []float32, blocks []byte) { formats[d].decode(y, blocks) }

// Quantised reports whether several elements share a scale.
func (d DType) Quantised() bool { return formats[d].blockElements > 1 }

// Size returns the size of one element in bytes. Only keys and values have formats for which it
// makes sense; for weights see [DType.Bytes].
func (d DType) Size() int64 { return d.Bytes(1) }

func decodeF32(y []float32, row []byte) {
	for i := range y {
		y[i] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
	}
}

func decodeBF16(y []float32, row []byte) {
	for i := range y {
		y[i] = vec.BF16(binary.LittleEndian.Uint16(row[2*i:]))
	}
}

func decodeF16(y []float32, row []byte) {
	for i := range y {
		y[i] = Float16(binary.LittleEndian.Uint16(row[2*i:]))
	}
}

func sameBits(row []byte, column int) uint16 { return binary.LittleEndian.Uint16(row[2*column:]) }

func roundedBits(row []byte, column int) uint16 {
	return vec.NearestBF16(math.Float32frombits(binary.LittleEndian.Uint32(row[4*column:])))
}

// Float16 returns the value of an IEEE 754 binary16.
func Float16(b uint16) float32 {
	sign, rest := uint32(b&0x8000)<<16, uint32(b&0x7fff)<<13
	if rest >= 0x7c00<<13 { // infinity and NaN
		return math.Float32frombits(sign | 0x7f800000 | rest&0x7fffff)
	}
	// The exponents' biases differ by 112; the product is exact for subnormals too.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(rest)*0x1p112))
}
