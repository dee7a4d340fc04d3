package weights

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Finite returns ErrNotFinite, with file, tensor and element, if a tensor holds a NaN or an
// infinity. It reads every byte of the checkpoint, and returns ctx's error once ctx has ended.
func (c *Checkpoint) Finite(ctx context.Context) error {
	for _, name := range c.Names() {
		t, element := c.tensors[name], -1
		if err := Guard(func() (err error) { element, err = t.notFinite(ctx); return err }); err != nil {
			return err
		}
		if element >= 0 {
			return fmt.Errorf("weights: %s: tensor %.80q: element %d of %d is %w",
				t.File, name, element, t.elements(), ErrNotFinite)
		}
	}
	return nil
}

// exponent holds the bits of a DType's exponent in each element of an 8-byte word. They are all
// set in a NaN or an infinity, and in no other number.
type exponent struct {
	all, lowest uint64
	sign        uint64 // the bit above
}

var exponents = map[DType]exponent{
	BF16: {0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080, 0x8000_8000_8000_8000},
	F16:  {0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400, 0x8000_8000_8000_8000},
	// In E4M3 fraction and exponent are all set in a NaN; it has no infinity.
	F8_E4M3: {0x7f7f_7f7f_7f7f_7f7f, 0x0101_0101_0101_0101, 0x8080_8080_8080_8080},
	F32:     {0x7f80_0000_7f80_0000, 0x0080_0000_0080_0000, 0x8000_0000_8000_0000},
}

// full returns a bit of the last byte of each element in word that is not finite: adding the
// lowest bit to a full exponent carries into the sign, and never further.
func (e exponent) full(word uint64) uint64 { return (word&e.all + e.lowest) & e.sign }

// betweenLooks is the number of bytes that are read between two looks at a context.
const betweenLooks = 16 << 20

// scales holds the offsets of the binary16 scales in a block of each quantised type but MXFP4, which has an exponent.
var scales = map[DType][]int{Q4_0: {0}, Q4_1: {0, 2}, Q5_0: {0}, Q5_1: {0, 2}, Q8_0: {0}, Q4_K: {0, 2}, Q5_K: {0, 2},
	Q6_K: {208}, IQ4_XS: {0}}

// mostExponent is the largest exponent of MXFP4 with which all codes are finite float32.
const mostExponent = 252

// elements returns the number of elements.
func (t Tensor) elements() int {
	elements, bytes := t.DType.Block()
	return len(t.Data) / bytes * elements
}

// scalesNotFinite returns the index of the first element of the first block with a scale that is a NaN or an infinity,
// or -1. Products of a finite scale and codes are finite.
func (t Tensor) scalesNotFinite(ctx context.Context) (int, error) {
	elements, bytes := t.DType.Block()
	for at := 0; at < len(t.Data); at += bytes {
		if at/bytes%(betweenLooks/256) == 0 && ctx.Err() != nil {
			return -1, ctx.Err()
		}
		bad := t.DType == MXFP4 && t.Data[at] > mostExponent
		for _, offset := range scales[t.DType] {
			bad = bad || binary.LittleEndian.Uint16(t.Data[at+offset:])&0x7c00 == 0x7c00
		}
		if bad {
			return at / bytes * elements, nil
		}
	}
	return -1, nil
}

// notFinite returns the index of the first element that is a NaN or an infinity, or -1. Of quantised types it is the
// first of its block.
func (t Tensor) notFinite(ctx context.Context) (int, error) {
	if t.DType.Quantised() {
		return t.scalesNotFinite(ctx)
	}
	e, float := exponents[t.DType]
	if !float {
		return -1, nil
	}
	size := t.DType.Size()
	for begin := 0; begin < len(t.Data); begin += betweenLooks {
		if err := ctx.Err(); err != nil {
			return -1, err
		}
		if at := e.find(t.Data[begin:min(begin+betweenLooks, len(t.Data))]); at >= 0 {
			return (begin + at) / size, nil
		}
	}
	return -1, nil
}

// find returns the offset of the last byte of the first element that is not finite, or -1.
func (e exponent) find(data []byte) int {
	at := 0
	for ; at+8 <= len(data); at += 8 {
		if full := e.full(binary.LittleEndian.Uint64(data[at:])); full != 0 {
			return at + bits.TrailingZeros64(full)/8
		}
	}
	var rest [8]byte // zeros after the data are finite
	copy(rest[:], data[at:])
	if full := e.full(binary.LittleEndian.Uint64(rest[:])); full != 0 {
		return at + bits.TrailingZeros64(full)/8
	}
	return -1
}
