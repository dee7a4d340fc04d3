package weights

import (
	"encoding/binary"
	"math"
	"strings"
)

// The methods here edit metadata in place, for files that say in other words what llama.cpp's say. They leave values
// alone that a clone of the map shares.

// SetString sets a string.
func (m Metadata) SetString(key, text string) {
	m[key] = value{kind: kindString, raw: append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)}
}

// SetUint sets a whole number.
func (m Metadata) SetUint(key string, n uint32) {
	m[key] = value{kind: kindU32, raw: binary.LittleEndian.AppendUint32(nil, n)}
}

// SetFloat sets a floating-point number.
func (m Metadata) SetFloat(key string, f float32) {
	m[key] = value{kind: kindF32, raw: binary.LittleEndian.AppendUint32(nil, math.Float32bits(f))}
}

// SetBool sets a boolean.
func (m Metadata) SetBool(key string, is bool) {
	raw := []byte{0}
	if is {
		raw[0] = 1
	}
	m[key] = value{kind: kindBool, raw: raw}
}

// Rename gives a value another key. A value that has that key already stays, and the other is left where it is.
func (m Metadata) Rename(key, to string) {
	if v, ok := m[key]; ok && !m.Has(to) {
		m[to] = v
		delete(m, key)
	}
}

// RenamePrefix gives the keys that begin with one prefix another, as Rename does.
func (m Metadata) RenamePrefix(prefix, to string) {
	for _, key := range m.Keys() {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			m.Rename(key, to+rest)
		}
	}
}

// Has reports whether a key is there.
func (m Metadata) Has(key string) bool { _, ok := m[key]; return ok }

// Truncate cuts an array to its first n elements. It changes no other value, and no shorter array.
func (m Metadata) Truncate(key string, n int) {
	v, ok := m[key]
	if !ok || !v.isArray {
		return
	}
	if size := kindSizes[v.kind]; size > 0 {
		v.raw = v.raw[:min(len(v.raw), n*size)]
	} else {
		c := cursor{data: v.raw}
		for range n {
			if c.at == len(c.data) {
				break
			}
			c.take(c.u64())
		}
		v.raw = v.raw[:c.at]
	}
	m[key] = v
}
