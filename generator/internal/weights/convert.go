package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Errors of quantised tensors that a [Conversion] reads.
var (
	// ErrQuantised means that the tensors of a quantised matrix do not fit each other.
	ErrQuantised = errors.New("quantised tensors do not fit each other")
	// ErrActOrder means that groups of columns, which are spread over a matrix, have sizes that are not served.
	ErrActOrder = errors.New("activation order is not served")
)

// Conversion makes the rows of a matrix whose codes, scales and zero points are tensors of their own. Each row it
// makes is whole blocks of the matrix's DType, with scales and zero points in the blocks.
type Conversion struct {
	Sources []Tensor // of the file
	// Rows writes whole rows to dst, as many as it holds, from row first on. Goroutines may call it at the same time.
	// Errors: ErrQuantised, ErrNotFinite, and ErrChanged, since it reads the files.
	Rows func(dst []byte, first int) error
	// Order is the column of the matrix that each column of the rows is; nil: the same.
	Order []int32
}

// converted returns a matrix that is made from sources. rows writes rows and may panic on a fault.
func converted(d DType, rows, cols int, sources []Tensor, write func(dst []byte, first int) error) Tensor {
	return Tensor{DType: d, Shape: []int{rows, cols}, File: sources[0].File, Conversion: &Conversion{Sources: sources,
		Rows: func(dst []byte, first int) error { return Guard(func() error { return write(dst, first) }) }}}
}

// SourceBytes returns the bytes of the file that a matrix is converted from; 0 if Data holds its rows.
func (t Tensor) SourceBytes() (bytes int64) {
	if t.Conversion != nil {
		for _, s := range t.Conversion.Sources {
			bytes += int64(len(s.Data))
		}
	}
	return bytes
}

// Drop lets the system drop the pages that the sources of a converted matrix have in memory. They may still be read.
func (t Tensor) Drop() {
	if t.Conversion == nil {
		return
	}
	page := uintptr(os.Getpagesize())
	for _, s := range t.Conversion.Sources {
		if len(s.Data) == 0 || !s.mapped {
			continue
		}
		skip := -uintptr(unsafe.Pointer(&s.Data[0])) % page // to the first page that is the tensor's alone
		if n := uintptr(len(s.Data)); n > skip+page {
			_ = unix.Madvise(s.Data[skip:n-(n-skip)%page], unix.MADV_DONTNEED) // only advice
		}
	}
}

// refuse returns ErrQuantised with the tensor's file and name.
func (t Tensor) refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %.80q: %s", ErrQuantised, t.File, t.Name, fmt.Sprintf(format, args...))
}

// wants returns an error unless t has one of the types and the shape.
func (t Tensor) wants(shape []int, types ...DType) error {
	if !slices.Contains(types, t.DType) {
		return t.refuse("it is %v, wants %v", t.DType, types)
	}
	if !slices.Equal(t.Shape, shape) {
		return t.refuse("it has the shape %v, wants %v", t.Shape, shape)
	}
	return nil
}

// matrix returns the dimensions of a matrix of one type, which are at least 1.
func (t Tensor) matrix(d DType) (rows, cols int, err error) {
	if t.DType != d || len(t.Shape) != 2 || t.Shape[0] < 1 || t.Shape[1] < 1 {
		return 0, 0, t.refuse("it is %v%v, wants a matrix of %v", t.DType, t.Shape, d)
	}
	return t.Shape[0], t.Shape[1], nil
}

// Float returns element i of a floating-point tensor, exactly.
func (t *Tensor) Float(i int) float32 {
	switch t.DType {
	case BF16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
	case F16:
		return half(binary.LittleEndian.Uint16(t.Data[2*i:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
}

// word returns element i of the data of an I32 tensor.
func word(data []byte, i int) uint32 { return binary.LittleEndian.Uint32(data[4*i:]) }

// half returns the value of IEEE 754 binary16 bits.
func half(b uint16) float32 {
	sign, exponent, fraction := uint32(b>>15)<<31, uint32(b>>10&31), uint32(b&1023)
	switch exponent {
	case 0: // zero or subnormal: fraction · 2^-24
		return float32(math.Copysign(float64(fraction)/(1<<24), 1-2*float64(b>>15)))
	case 31: // infinity or NaN
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
