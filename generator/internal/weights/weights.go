// Package weights reads the tensors of a checkpoint in the safetensors format,
// from one file or from several with an index. A checkpoint is not trusted: Open
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

// DType is the element type of a tensor.
type DType uint8

// The element types, all little-endian. The zero DType is no type.
const (
	BF16 DType = iota + 1
	F16
	F32
)

var dtypes = map[string]DType{"BF16": BF16, "F16": F16, "F32": F32}

// Size returns the size of an element in bytes; 0 of the zero DType.
func (d DType) Size() int {
	switch d {
	case BF16, F16:
		return 2
	case F32:
		return 4
	}
	return 0
}

// String returns the name that safetensors uses.
func (d DType) String() string {
	for name, t := range dtypes {
		if t == d {
			return name
		}
	}
	return "none"
}

// Tensor is a view of one tensor in a checkpoint. Data holds the elements in
// row-major order, little-endian, without any alignment. It is read-only and valid
// until [Checkpoint.Close].
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
	File  string // name of the file that holds it
}
