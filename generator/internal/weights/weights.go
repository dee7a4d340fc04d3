// Package weights reads the tensors of a checkpoint in the safetensors format,
// from one file or from several with an index, and in the GGUF format, from one file
// or from its parts. A checkpoint is not trusted: Open
// checks all of its structure before it hands out a tensor, and the memory that
// the checks take is bounded.
package weights

import "errors"

// Errors of a [Checkpoint]. Each comes wrapped with the file, the
// tensor and the fault.
var (
	ErrMissing   = errors.New("no such tensor")
	ErrTruncated = errors.New("file ends too early")
	ErrHeader    = errors.New("malformed header")
	ErrTooLarge  = errors.New("too large")
	ErrDType     = errors.New("dtype not supported")
	ErrShape     = errors.New("shape does not match the tensor's bytes")
	ErrRange     = errors.New("tensors overlap or leave a gap")
	ErrIndex     = errors.New("index and shards disagree")
	// ErrNotFinite means that a tensor holds no usable number. It comes from [Checkpoint.Finite].
	ErrNotFinite = errors.New("NaN or infinite")
	// ErrChanged means that a file was written to while it was open. Data read from
	// it is worthless, and reading a page past its new end faults.
	ErrChanged = errors.New("file changed while it was in use")
)

// DType is the element type of a tensor, or the format of its quantised blocks.
type DType uint8

// The types, all little-endian. The zero DType is no type. Those from Q4_0 on hold a row as
// blocks of quantised elements with their scales. (ggml, ggml-common.h.) F8 and those after it are in no
// file: a [Conversion] makes them, and package kernels has their layout. The last are the elements of the tensors
// that it reads.
const (
	BF16 DType = iota + 1
	F16
	F32
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
	F8
	G4_32
	G4_64
	G4_128
	F8_E4M3
	I8
	U8
	I32
	I64
	BOOL
)

// dtypes are the types of safetensors.
var dtypes = map[string]DType{"BF16": BF16, "F16": F16, "F32": F32, "F8_E4M3": F8_E4M3, "I8": I8, "U8": U8,
	"I32": I32, "I64": I64, "BOOL": BOOL}

// blocks holds the name of each type, and the elements and bytes of its blocks.
var blocks = [...]struct {
	name            string
	elements, bytes int
}{
	0: {"none", 1, 0}, BF16: {"BF16", 1, 2}, F16: {"F16", 1, 2}, F32: {"F32", 1, 4},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24},
	Q8_0: {"Q8_0", 32, 34}, Q4_K: {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210},
	IQ4_XS: {"IQ4_XS", 256, 136}, MXFP4: {"MXFP4", 32, 17},
	F8: {"F8", 128, 132}, G4_32: {"G4_32", 32, 21}, G4_64: {"G4_64", 64, 37}, G4_128: {"G4_128", 128, 69},
	F8_E4M3: {"F8_E4M3", 1, 1}, I8: {"I8", 1, 1}, U8: {"U8", 1, 1}, I32: {"I32", 1, 4}, I64: {"I64", 1, 8},
	BOOL: {"BOOL", 1, 1},
}

// Block returns the elements and the bytes of a block; 1 and the element's size if the type is not quantised.
func (d DType) Block() (elements, bytes int) { return blocks[d].elements, blocks[d].bytes }

// Quantised reports whether several elements share a scale.
func (d DType) Quantised() bool { return blocks[d].elements > 1 }

// Size returns the size of an element in bytes; 0 of the zero DType and of quantised types.
func (d DType) Size() int {
	if d.Quantised() {
		return 0
	}
	return blocks[d].bytes
}

// Bytes returns the size of n elements, which are whole blocks.
func (d DType) Bytes(n int) int { return n / blocks[d].elements * blocks[d].bytes }

// String returns the name that safetensors or ggml uses.
func (d DType) String() string { return blocks[d].name }

// Tensor is a view of one tensor in a checkpoint. Data holds the elements in
// row-major order, little-endian, without any alignment. It is read-only and valid
// until [Checkpoint.Close].
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
	File  string // name of the file that holds it
	// Conversion makes the rows of a quantised matrix of several tensors, and Data is nil; nil: Data holds them.
	Conversion *Conversion
	// Adjacent means that each byte of codes of MXFP4 has two columns beside each other, the even one in the low bits. In
	// other GGUF files it has columns j and j+16.
	Adjacent bool
	mapped   bool // Data is a part of a mapped file
}
