package protocol

import (
	"encoding/binary"
	"errors"
)

// kind is the kind of a msgpack item, as far as the protocol distinguishes kinds.
type kind uint8

const (
	kindNone kind = iota // the byte 0xc1, never used
	kindNil
	kindBool
	kindUint // a whole number that is not negative, in any encoding
	kindInt  // a negative whole number
	kindFloat
	kindStr
	kindBin
	kindExt
	kindArray
	kindMap
)

var kindNames = [...]string{"invalid", "nil", "a boolean", "a whole number", "a negative number",
	"a float", "a string", "binary", "an extension", "a list", "a map"}

func (k kind) String() string { return kindNames[k] }

// item is the head of a msgpack item.
type item struct {
	kind kind
	size int    // bytes of the head: format, and number or length
	n    int    // bytes that follow (str, bin, ext), items (array) or pairs (map)
	num  uint64 // the value of a kindUint, or of a kindInt in two's complement
}

// body returns the number of bytes after the head, without children.
func (it item) body() int {
	if it.kind == kindStr || it.kind == kindBin || it.kind == kindExt {
		return it.n
	}
	return 0
}

// children returns the number of items contained in it.
func (it item) children() int {
	switch it.kind {
	case kindArray:
		return it.n
	case kindMap:
		return 2 * it.n
	}
	return 0
}

var (
	errTruncated = errors.New("the bytes end inside an item")
	errNeverUsed = errors.New("the byte c1, which msgpack never uses")
)

// formats gives, for the first bytes c0 to df, the item's kind and the width in bytes of
// the number or length that follows. Source: the msgpack specification.
var formats = [32]struct {
	kind  kind
	width int
}{
	{kindNil, 0}, {kindNone, 0}, {kindBool, 0}, {kindBool, 0},
	{kindBin, 1}, {kindBin, 2}, {kindBin, 4},
	{kindExt, 1}, {kindExt, 2}, {kindExt, 4},
	{kindFloat, 4}, {kindFloat, 8},
	{kindUint, 1}, {kindUint, 2}, {kindUint, 4}, {kindUint, 8},
	{kindInt, 1}, {kindInt, 2}, {kindInt, 4}, {kindInt, 8},
	{kindExt, 0}, {kindExt, 0}, {kindExt, 0}, {kindExt, 0}, {kindExt, 0},
	{kindStr, 1}, {kindStr, 2}, {kindStr, 4},
	{kindArray, 2}, {kindArray, 4},
	{kindMap, 2}, {kindMap, 4},
}

// readItem reads the head of the item at the start of b.
func readItem(b []byte) (item, error) {
	if len(b) == 0 {
		return item{}, errTruncated
	}
	switch c := b[0]; {
	case c <= 0x7f:
		return item{kind: kindUint, size: 1, num: uint64(c)}, nil
	case c <= 0x8f:
		return item{kind: kindMap, size: 1, n: int(c & 0x0f)}, nil
	case c <= 0x9f:
		return item{kind: kindArray, size: 1, n: int(c & 0x0f)}, nil
	case c <= 0xbf:
		return item{kind: kindStr, size: 1, n: int(c & 0x1f)}, nil
	case c >= 0xe0:
		return item{kind: kindInt, size: 1, num: uint64(int64(int8(c)))}, nil
	}
	return readLong(b)
}

// wholeOf2 is the first byte of a whole number of two bytes.
const wholeOf2 = 0xcd

// readWhole reads a whole number at the start of b, if it is complete and in one of the
// encodings of numbers that are not negative. Otherwise size is 0.
func readWhole(b []byte) (num uint64, size int) {
	if len(b) == 0 {
		return 0, 0
	}
	c := b[0]
	if c <= 0x7f {
		return uint64(c), 1
	}
	if c < 0xcc || c > 0xcf { // the formats of kindUint
		return 0, 0
	}
	if size = 1 + formats[c-0xc0].width; size > len(b) {
		return 0, 0
	}
	for _, next := range b[1:size] {
		num = num<<8 | uint64(next)
	}
	return num, size
}

// atOnce is how many whole numbers of two bytes are read at once.
const atOnce = 8

// areNumbersOf2 reports whether b begins with atOnce whole numbers of two bytes, as most token ids are: every third byte
// is wholeOf2 then.
func areNumbersOf2(b []byte) bool {
	const heads = wholeOf2 * 0x0101010101010101
	const in0, in1, in2 = 0x00ff0000ff0000ff, 0xff0000ff0000ff00, 0x0000ff0000ff0000 // which bytes of each word are heads
	if len(b) < 3*atOnce {
		return false
	}
	x := binary.LittleEndian.Uint64(b)&in0 ^ heads&in0
	y := binary.LittleEndian.Uint64(b[8:])&in1 ^ heads&in1
	z := binary.LittleEndian.Uint64(b[16:])&in2 ^ heads&in2
	return x|y|z == 0
}

// numbersOf2 counts the consecutive whole numbers of two bytes at the start of b, at most `most`.
func numbersOf2(b []byte, most int) (items int) {
	for items+atOnce <= most && areNumbersOf2(b) {
		items, b = items+atOnce, b[3*atOnce:]
	}
	for items < most && len(b) > 2 && b[0] == wholeOf2 {
		items, b = items+1, b[3:]
	}
	return items
}

// wholeNumbers counts the consecutive items at the start of b that readWhole reads, at
// most `most`, and their bytes.
func wholeNumbers(b []byte, most int) (items, size int) {
	for items < most {
		run := numbersOf2(b[size:], most-items)
		items, size = items+run, size+3*run
		for range min(2*atOnce, most-items) { // before another run is looked for
			if size >= len(b) {
				return items, size
			}
			n := int(wholeSizes[b[size]])
			if n == 0 || size+n > len(b) {
				return items, size
			}
			items, size = items+1, size+n
		}
	}
	return items, size
}

// wholeSizes gives the bytes of a whole number in the encodings that readWhole reads, by its first byte; 0 for others.
var wholeSizes = func() (sizes [256]uint8) {
	for c := range 0x80 {
		sizes[c] = 1
	}
	for i := range 4 {
		sizes[0xcc+i] = 1 + 1<<i
	}
	return sizes
}()

// readLong reads the head of an item with a first byte from c0 to df.
func readLong(b []byte) (item, error) {
	f := formats[b[0]-0xc0]
	if f.kind == kindNone {
		return item{}, errNeverUsed
	}
	if len(b) < 1+f.width {
		return item{}, errTruncated
	}
	it := item{kind: f.kind, size: 1 + f.width, num: bigEndian(b[1 : 1+f.width])}
	switch f.kind {
	case kindInt:
		it.num = signExtend(it.num, f.width)
		if int64(it.num) >= 0 {
			it.kind = kindUint
		}
	case kindExt:
		it.n = int(it.num) + 1 // the extension's type precedes its bytes
		if f.width == 0 {
			it.n = 1<<(b[0]-0xd4) + 1
		}
	case kindStr, kindBin, kindArray, kindMap:
		it.n = int(it.num)
	}
	return it, nil
}

func bigEndian(b []byte) uint64 {
	var full [8]byte
	copy(full[8-len(b):], b)
	return binary.BigEndian.Uint64(full[:])
}

func signExtend(v uint64, width int) uint64 {
	shift := 64 - 8*width
	return uint64(int64(v<<shift) >> shift)
}
