// Package weights reads the tensors of a checkpoint in the safetensors format,
// one file or several with an index. A checkpoint is not trusted: all of its
// structure is checked before a tensor is handed out, and what checking takes
// is bounded whatever the file says.
package weights

import "errors"

// Errors of Open and Tensor. Each comes wrapped, with the file, the tensor and
// the fault.
var (
	ErrMissing   = errors.New("no such tensor")
	ErrTruncated = errors.New("file ends too early")
	ErrHeader    = errors.New("malformed header")
	ErrTooLarge  = errors.New("past a bound")
	ErrDType     = errors.New("dtype not supported")
	ErrShape     = errors.New("shape does not match the tensor's bytes")
	ErrRange     = errors.New("tensors overlap or leave bytes that belong to none")
	ErrIndex     = errors.New("index and shards disagree")
	// ErrChanged is a file that was written to while it was open. What was read
	// from it is worth nothing, and a page that is gone faults when it is read.
	ErrChanged = errors.New("file changed while it was in use")
)

// DType is the type of a tensor's elements.
type DType uint8

// The element types, little-endian. The zero DType is none.
const (
	BF16 DType = iota + 1
	F16
	F32
)

var dtypes = map[string]DType{"BF16": BF16, "F16": F16, "F32": F32}

// Size returns the bytes of an element.
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

// Tensor is a view of a checkpoint. Data is row-major and little-endian, holds
// the product of Shape elements, and must neither be written to nor be used
// after the checkpoint's Close. No alignment is promised.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
	File  string // that it is in
}
