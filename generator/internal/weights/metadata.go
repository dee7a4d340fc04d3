package weights

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Bounds of a GGUF file's metadata, beside maxName for each key.
const (
	maxPairs    = 1 << 14
	maxMetadata = 48 << 20 // bytes of all values together; the largest published tokenizer takes 20 MB
)

// Metadata holds the key-value pairs of a GGUF file. It is a copy, so it stays valid and unchanged whatever happens to
// the file. A method returns false for a key that is absent or has a value of another type. A nil Metadata has no keys.
type Metadata map[string]value

// value is a value as the file holds it, checked.
type value struct {
	kind    kind // of the value or, in an array, of its elements
	isArray bool
	raw     []byte // without the array's type and count
}

// kind is the type of a value, numbered as in the file.
type kind uint32

const (
	kindU8 kind = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

// kindSizes holds the bytes of a value of each kind; 0: it has its length in front.
var kindSizes = [...]int{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// kindNames holds the names of the kinds in GGUF's specification, for messages.
var kindNames = [...]string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array",
	"uint64", "int64", "float64"}

// typeName returns the name of the value's type.
func (v value) typeName() string {
	if v.isArray {
		return "array of " + kindNames[v.kind]
	}
	return kindNames[v.kind]
}

// Keys returns all keys, sorted.
func (m Metadata) Keys() []string { return slices.Sorted(maps.Keys(m)) }

// Bytes returns the size of all values.
func (m Metadata) Bytes() (n int64) {
	for _, v := range m {
		n += int64(len(v.raw))
	}
	return n
}

// String returns a string.
func (m Metadata) String(key string) (string, bool) {
	v := m[key]
	return string(v.raw[min(len(v.raw), 8):]), v.raw != nil && v.kind == kindString && !v.isArray
}

// Bool returns a boolean.
func (m Metadata) Bool(key string) (is, ok bool) {
	v := m[key]
	ok = v.raw != nil && v.kind == kindBool && !v.isArray
	return ok && v.raw[0] != 0, ok
}

// Uint returns a whole number that is not negative, of any integer type.
func (m Metadata) Uint(key string) (uint64, bool) {
	v := m[key]
	n, ok := v.integer(v.raw)
	signed := v.kind == kindI8 || v.kind == kindI16 || v.kind == kindI32 || v.kind == kindI64
	return n, ok && !v.isArray && !(signed && int64(n) < 0)
}

// Float returns a floating-point number.
func (m Metadata) Float(key string) (float64, bool) {
	v := m[key]
	f, ok := v.float(v.raw)
	return f, ok && !v.isArray
}

// Strings returns an array of strings.
func (m Metadata) Strings(key string) ([]string, bool) {
	v := m[key]
	if !v.isArray || v.kind != kindString {
		return nil, false
	}
	list, c := []string{}, cursor{data: v.raw}
	for c.err == nil && c.at < len(c.data) {
		list = append(list, c.string())
	}
	return list, c.err == nil
}

// Ints returns an array of integers of any type below 2^63.
func (m Metadata) Ints(key string) ([]int64, bool) {
	return array(m[key], func(v value, raw []byte) (int64, bool) {
		n, ok := v.integer(raw)
		return int64(n), ok && (v.kind != kindU64 || n <= math.MaxInt64)
	})
}

// Bools returns an array of booleans, or of numbers in their place: 0 is false.
func (m Metadata) Bools(key string) ([]bool, bool) {
	return array(m[key], func(v value, raw []byte) (bool, bool) {
		if v.kind == kindBool {
			return raw[0] != 0, true
		}
		n, ok := v.integer(raw)
		return n != 0, ok
	})
}

// Floats returns an array of floating-point numbers.
func (m Metadata) Floats(key string) ([]float64, bool) { return array(m[key], value.float) }

// array returns the elements of an array of numbers.
func array[T any](v value, element func(v value, raw []byte) (T, bool)) ([]T, bool) {
	if !v.isArray || kindSizes[v.kind] == 0 {
		return nil, false
	}
	list := make([]T, 0, len(v.raw)/kindSizes[v.kind])
	for raw := v.raw; len(raw) > 0; raw = raw[kindSizes[v.kind]:] {
		e, ok := element(v, raw)
		if !ok {
			return nil, false
		}
		list = append(list, e)
	}
	return list, true
}

// integer returns the first number in raw. A negative one is sign-extended.
func (v value) integer(raw []byte) (uint64, bool) {
	if len(raw) == 0 {
		return 0, false
	}
	switch v.kind {
	case kindU8:
		return uint64(raw[0]), true
	case kindI8:
		return uint64(int8(raw[0])), true
	case kindU16:
		return uint64(binary.LittleEndian.Uint16(raw)), true
	case kindI16:
		return uint64(int16(binary.LittleEndian.Uint16(raw))), true
	case kindU32:
		return uint64(binary.LittleEndian.Uint32(raw)), true
	case kindI32:
		return uint64(int32(binary.LittleEndian.Uint32(raw))), true
	case kindU64, kindI64:
		return binary.LittleEndian.Uint64(raw), true
	}
	return 0, false
}

// float returns the first number in raw.
func (v value) float(raw []byte) (float64, bool) {
	switch {
	case len(raw) == 0:
	case v.kind == kindF32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), true
	case v.kind == kindF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw)), true
	}
	return 0, false
}

// cursor reads a GGUF file from front to back. After an error it returns zeros.
type cursor struct {
	data []byte
	at   int
	err  error
}

// take returns the next n bytes, or nil and sets err.
func (c *cursor) take(n uint64) []byte {
	if left := uint64(len(c.data) - c.at); c.err == nil && n > left {
		c.err = fmt.Errorf("%w: at byte %d the header needs %d bytes more and %d are there: download the file again",
			ErrTruncated, c.at, n, left)
	}
	if c.err != nil {
		return nil
	}
	part := c.data[c.at:][:n:n]
	c.at += int(n)
	return part
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) string() string { return string(c.take(c.u64())) }

// name reads a key or the name of a tensor.
func (c *cursor) name() string {
	n := c.u64()
	if n > maxName {
		c.fail(ErrTooLarge, "at byte %d: a name of %d bytes, at most %d are allowed", c.at, n, maxName)
	}
	return string(c.take(n))
}

// fail sets err unless there was an error before.
func (c *cursor) fail(err error, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{err}, args...)...)
	}
}

// metadata reads count pairs.
func (c *cursor) metadata(count uint64) Metadata {
	m, bytes := Metadata{}, 0
	if count > maxPairs {
		c.fail(ErrTooLarge, "%d key-value pairs, at most %d are allowed", count, maxPairs)
	}
	for i := uint64(0); i < count && c.err == nil; i++ {
		key := c.name()
		if _, twice := m[key]; twice {
			c.fail(ErrHeader, "the key %.80q occurs twice", key)
		}
		v := c.value()
		if bytes += len(v.raw); bytes > maxMetadata {
			c.fail(ErrTooLarge, "metadata of more than %d bytes", maxMetadata)
		}
		if c.err != nil {
			c.err = fmt.Errorf("key %.80q: %w", key, c.err)
			return nil
		}
		v.raw = append(make([]byte, 0, len(v.raw)), v.raw...) // never nil
		m[key] = v
	}
	return m
}

// value reads a value. Its raw bytes are a part of c.data.
func (c *cursor) value() value {
	v := value{kind: kind(c.u32())}
	if v.isArray = v.kind == kindArray; !v.isArray {
		v.raw = c.elements(v.kind, 1)
		return v
	}
	v.kind = kind(c.u32())
	v.raw = c.elements(v.kind, c.u64())
	return v
}

// elements returns the bytes of count values, and refuses arrays among them.
func (c *cursor) elements(k kind, count uint64) []byte {
	begin := c.at
	switch {
	case k == kindString:
		for i := uint64(0); i < count && c.err == nil; i++ {
			c.take(c.u64())
		}
	case int(k) >= len(kindSizes) || k == kindArray:
		c.fail(ErrHeader, "a value of type %d, or an array within an array", k)
	case count > math.MaxInt64/8: // the product would overflow
		c.fail(ErrTruncated, "an array of %d elements", count)
	default:
		c.take(count * uint64(kindSizes[k]))
	}
	if c.err != nil {
		return nil
	}
	return c.data[begin:c.at]
}
