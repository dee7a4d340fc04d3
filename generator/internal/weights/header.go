package weights

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
)

// Bounds of a checkpoint. They keep the memory that Open holds below 64 MiB, the
// mapped files not counted.
const (
	prefixSize = 8           // bytes: the length of the header
	maxHeader  = 100_000_000 // bytes: the bound of the format itself
	maxTensors = 1 << 16     // of all shards together
	maxName    = 256         // bytes
	maxRank    = 8
)

// entry is one tensor as the header describes it.
type entry struct {
	DType   *string   `json:"dtype"`
	Shape   []natural `json:"shape"`
	Offsets []natural `json:"data_offsets"` // begin and end, in bytes after the header
}

// natural is a JSON number without sign, fraction or exponent, below 2^63. It fits
// an int on 64-bit machines, the only ones that this builds for.
type natural int64

func (n *natural) UnmarshalJSON(data []byte) error {
	v, err := strconv.ParseUint(string(data), 10, 63)
	if err != nil {
		return fmt.Errorf("%.30s is not a whole number from 0 to 2^63-1", data)
	}
	*n = natural(v)
	return nil
}

// rangedTensor is a tensor and the range of its bytes after the header.
type rangedTensor struct {
	Tensor
	begin, end int64
}

// parse returns the tensors of a file. More than limit is an error.
func parse(f *file, limit int) ([]Tensor, error) {
	header, body, err := cut(f.data)
	if err != nil {
		return nil, err
	}
	f.header = header
	list, err := parseHeader(header, limit)
	if err != nil {
		return nil, err
	}
	if err := checkRanges(list, int64(len(body))); err != nil {
		return nil, err
	}
	tensors := make([]Tensor, len(list))
	for i, p := range list {
		tensors[i] = p.Tensor
		tensors[i].Data = body[p.begin:p.end:p.end]
	}
	return tensors, nil
}

// cut splits a file into header and tensors. A file is the header's length (8 bytes,
// little-endian), the header, and the tensors.
func cut(data []byte) (header, body []byte, err error) {
	if len(data) < prefixSize {
		return nil, nil, fmt.Errorf("%w: %d bytes", ErrTruncated, len(data))
	}
	n, rest := binary.LittleEndian.Uint64(data), data[prefixSize:]
	if n > maxHeader {
		return nil, nil, fmt.Errorf("%w: the header has %d bytes, at most %d are allowed", ErrTooLarge, n, maxHeader)
	}
	if n > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("%w: the header has %d bytes and %d are there: download the file again",
			ErrTruncated, n, len(rest))
	}
	return rest[:n], rest[n:], nil
}

// parseHeader returns the tensors that a header lists, without Data.
func parseHeader(header []byte, limit int) ([]rangedTensor, error) {
	var list []rangedTensor
	err := eachMember(header, func(name string, value *reader) error {
		if name == "__metadata__" {
			return value.decode(&map[string]string{})
		}
		if len(list) == limit {
			return fmt.Errorf("%w: more than %d tensors", ErrTooLarge, maxTensors)
		}
		var e entry
		if err := value.decode(&e); err != nil {
			return err
		}
		p, err := e.tensor(name)
		list = append(list, p)
		return err
	})
	return list, err
}

// tensor checks an entry and returns its tensor and range.
func (e *entry) tensor(name string) (rangedTensor, error) {
	switch {
	case e.DType == nil || e.Shape == nil || len(e.Offsets) != 2:
		return rangedTensor{}, fmt.Errorf("%w: a tensor needs dtype, shape and two data_offsets", ErrHeader)
	case dtypes[*e.DType] == 0:
		return rangedTensor{}, fmt.Errorf("%w: %.20q", ErrDType, *e.DType)
	case len(e.Shape) > maxRank:
		return rangedTensor{}, fmt.Errorf("%w: %d dimensions, at most %d are allowed",
			ErrTooLarge, len(e.Shape), maxRank)
	}
	p := rangedTensor{
		Tensor: Tensor{Name: name, DType: dtypes[*e.DType]},
		begin:  int64(e.Offsets[0]),
		end:    int64(e.Offsets[1]),
	}
	p.Shape = make([]int, 0, len(e.Shape))
	size, ok := uint64(p.DType.Size()), true
	for _, n := range e.Shape {
		p.Shape = append(p.Shape, int(n))
		size, ok = multiply(size, uint64(n), ok)
	}
	if !ok || p.end < p.begin || size != uint64(p.end-p.begin) {
		return rangedTensor{}, fmt.Errorf("%w: %s%v in the bytes %d to %d", ErrShape, p.DType, e.Shape, p.begin, p.end)
	}
	return p, nil
}

// multiply returns a·b; ok stays true unless the product overflows.
func multiply(a, b uint64, ok bool) (uint64, bool) {
	high, low := bits.Mul64(a, b)
	return low, ok && high == 0
}

// checkRanges refuses tensors that overlap, leave a gap, or do not end at the end of
// the file. It sorts the list by range. size is the bytes after the header.
func checkRanges(list []rangedTensor, size int64) error {
	slices.SortFunc(list, func(a, b rangedTensor) int {
		if a.begin != b.begin {
			return int(min(max(a.begin-b.begin, -1), 1))
		}
		return int(min(max(a.end-b.end, -1), 1))
	})
	at := int64(0)
	for _, p := range list {
		if p.begin != at {
			return fmt.Errorf("tensor %.80q: %w: it begins at byte %d, the one before it ends at %d",
				p.Name, ErrRange, p.begin, at)
		}
		if p.end > size {
			return fmt.Errorf("tensor %.80q: %w: after the header the tensor needs %d bytes and %d are there: "+
				"download the file again", p.Name, ErrTruncated, p.end, size)
		}
		at = p.end
	}
	if at != size {
		return fmt.Errorf("%w: after the header the tensors take %d bytes and %d are there", ErrRange, at, size)
	}
	return nil
}
