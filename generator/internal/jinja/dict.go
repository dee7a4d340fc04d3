package jinja

import (
	"math"
	"strconv"
	"strings"
)

// dict is Python's dict: it keeps the order of its keys.
type dict struct {
	keys   []value
	values []value
	index  map[hash]int
}

// hash is a comparable form of a value: two are equal if the values are.
type hash any

type (
	noneHash      struct{}
	undefinedHash struct{}
	tupleHash     string
	rangeHash     rangeObject
)

func newDict(n int) *dict {
	return &dict{make([]value, 0, n), make([]value, 0, n), make(map[hash]int, n)}
}

// set sets a key's value. An equal key that is there stays.
func (d *dict) set(key, v value) {
	h := hashOf(key)
	if i, ok := d.index[h]; ok {
		d.values[i] = v
		return
	}
	d.index[h] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, v)
}

func (d *dict) get(key value) (value, bool) {
	i, ok := d.index[hashOf(key)]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// attribute returns the value of a key that is a string.
func (d *dict) attribute(name string) (value, bool) {
	i, ok := d.index[name]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// hashOf returns a value's hash. It fails for values without one.
func hashOf(v value) hash {
	h, ok := tryHash(v)
	if !ok {
		fail("unhashable type: '%s'", typeName(v))
	}
	return h
}

func tryHash(v value) (hash, bool) {
	switch v := v.(type) {
	case nil:
		return noneHash{}, true
	case bool:
		return intOf(v), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return int64(v), true
		}
		return v, true
	case str:
		return v.text, true
	case *undefined:
		return undefinedHash{}, true
	case *tuple:
		return hashTuple(v)
	case *rangeObject:
		return rangeHash(*v), true
	case *list, *dict, *view:
		return nil, false
	}
	return v, true // an int64, or the identity of an object
}

// hashTuple writes the hashes of a tuple's items.
func hashTuple(t *tuple) (hash, bool) {
	var b strings.Builder
	for _, item := range t.items {
		h, ok := tryHash(item)
		if !ok {
			return nil, false
		}
		text := ""
		switch h := h.(type) {
		case int64:
			text = "i" + strconv.FormatInt(h, 10)
		case float64:
			text = "f" + strconv.FormatFloat(h, 'g', -1, 64)
		case string:
			text = "s" + h
		case tupleHash:
			text = "t" + string(h)
		case noneHash:
			text = "n"
		case undefinedHash:
			text = "u"
		default:
			fail("a tuple with a %s cannot be a key", typeName(item))
		}
		b.WriteString(strconv.Itoa(len(text)) + ":" + text)
	}
	return tupleHash(b.String()), true
}

func intOf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
