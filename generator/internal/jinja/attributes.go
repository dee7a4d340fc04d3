package jinja

import (
	"math"
	"slices"
	"strings"
)

// getAttribute is of.name: an attribute, or else an item of that name.
func getAttribute(of value, name str) value {
	checkDefined(of)
	if v, ok := attribute(of, name.text); ok {
		return v
	}
	if d, ok := of.(*dict); ok {
		if v, ok := d.attribute(name.text); ok {
			return v
		}
	}
	return &undefined{of: of, ofSet: true, name: name}
}

// getItem is of[key]: an item, or else an attribute of that name.
func getItem(of, key value) value {
	checkDefined(of)
	if v, ok := item(of, key); ok {
		return v
	}
	if name, ok := key.(str); ok {
		if v, ok := attribute(of, name.text); ok {
			return v
		}
	}
	return &undefined{of: of, ofSet: true, name: key}
}

// item is of[key] in Python, or false for an error.
func item(of, key value) (value, bool) {
	if d, ok := of.(*dict); ok {
		h, ok := tryHash(key)
		if !ok {
			return nil, false
		}
		i, ok := d.index[h]
		if !ok {
			return nil, false
		}
		return d.values[i], true
	}
	i, ok := integer(key)
	if !ok {
		return nil, false
	}
	switch of := of.(type) {
	case *list:
		return at(of.items, i)
	case *tuple:
		return at(of.items, i)
	case str:
		return of.at(i)
	case *rangeObject:
		n := int64(of.length())
		if i < 0 {
			i += n
		}
		return of.start + i*of.step, i >= 0 && i < n
	}
	return nil, false
}

// integer returns the value of an int or a bool.
func integer(v value) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		return intOf(v), true
	}
	return 0, false
}

// at returns the item at an index, which counts from the end if it is negative.
func at(items []value, i int64) (value, bool) {
	if i < 0 {
		i += int64(len(items))
	}
	if i < 0 || i >= int64(len(items)) {
		return nil, false
	}
	return items[i], true
}

func (s str) at(i int64) (value, bool) {
	n := int64(s.length())
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil, false
	}
	from := s.offset(int(i))
	rest := s.from(from)
	return rest.slice(0, rest.offset(1)), true
}

// slice is of[start:stop:step] in Python.
func slice(of, start, stop, step value) value {
	checkDefined(of)
	n, ok := length(of)
	switch of.(type) {
	case str, *list, *tuple, *rangeObject:
	default:
		ok = false
	}
	if !ok {
		fail("'%s' object cannot be sliced", typeName(of))
	}
	b := sliceBounds(n, start, stop, step)
	switch of := of.(type) {
	case str:
		return of.stride(b)
	case *tuple:
		return &tuple{items: stride(of.items, b)}
	case *rangeObject:
		return &rangeObject{
			of.start + int64(b.first)*of.step, of.start + int64(b.stop)*of.step, of.step * int64(b.by),
		}
	}
	return &list{stride(of.(*list).items, b)}
}

// bounds are the indices of a slice: first, first+by, and so on, as many as count.
type bounds struct{ first, stop, by, count int }

// sliceBounds returns the bounds of a slice of n items, as Python's PySlice_AdjustIndices does.
func sliceBounds(n int, start, stop, step value) bounds {
	by := clampIndex(step, 1)
	if by == 0 {
		fail("slice step cannot be zero")
	}
	adjust := func(v value, missing, low, high int) int {
		if v == nil {
			return missing
		}
		i := clampIndex(v, 0)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	if by > 0 {
		first, end := adjust(start, 0, 0, n), adjust(stop, n, 0, n)
		return bounds{first, end, by, max(0, (end-first+by-1)/by)}
	}
	first, end := adjust(start, n-1, -1, n-1), adjust(stop, -1, -1, n-1)
	return bounds{first, end, by, max(0, (first-end-by-1)/-by)}
}

// clampIndex returns an index, or missing for None. Large numbers become smaller ones, beyond
// any length.
func clampIndex(v value, missing int) int {
	if v == nil {
		return missing
	}
	checkDefined(v)
	i, ok := integer(v)
	if !ok {
		fail("slice indices must be integers or None, not %s", typeName(v))
	}
	return int(min(max(i, -math.MaxInt32), math.MaxInt32))
}

func stride(items []value, b bounds) []value {
	if b.by == 1 {
		return items[b.first : b.first+b.count : b.first+b.count]
	}
	part := make([]value, b.count)
	for i := range part {
		part[i] = items[b.first+i*b.by]
	}
	return part
}

func (s str) stride(b bounds) str {
	if b.count == 0 {
		return str{html: s.html}
	}
	if b.by == 1 {
		rest := s.from(s.offset(b.first))
		return rest.slice(0, rest.offset(b.count))
	}
	var all builder
	for _, c := range stride(s.chars(), b) {
		all.add(c.(str))
	}
	return all.markup(s.html)
}

// pythonNames are attributes that each Python object has, and that the sandbox hides.
const pythonNames = " __class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __getstate__" +
	" __gt__ __hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__" +
	" __setattr__ __sizeof__ __str__ __subclasshook__ "

// changing are methods that change lists and dicts, which the sandbox forbids.
var changing = map[string][]string{
	"list": {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"},
	"dict": {"clear", "pop", "popitem", "setdefault", "update"},
}

// attribute returns an attribute of a Python object, or false.
func attribute(of value, name string) (value, bool) {
	kind := typeName(of)
	hidden := strings.HasPrefix(name, "__") && strings.Contains(pythonNames, " "+name+" ")
	if hidden || slices.Contains(changing[kind], name) {
		return &undefined{hint: "access to attribute '" + name + "' of '" + kind + "' object is unsafe."}, true
	}
	switch of := of.(type) {
	case *namespace:
		v, ok := of.dict.attribute(name)
		if ok && strings.HasPrefix(name, "_") {
			v = &undefined{hint: "access to attribute '" + name + "' of 'Namespace' object is unsafe."}
		}
		return v, ok
	case *loop:
		return of.attribute(name)
	case *macro:
		return of.attribute(name)
	case *cycler:
		return of.attribute(name)
	case *joiner:
		return of.attribute(name)
	case *tuple:
		if i := slices.Index(of.fields, name); i >= 0 {
			return of.items[i], true
		}
	case int64, bool, float64:
		return numberAttribute(of, name)
	}
	m, ok := methods[kind][name]
	if !ok {
		return nil, false
	}
	return &method{name, func(r *run, a arguments) value { return m.apply(r, of, a) }}, true
}

// numberAttribute returns an attribute of a number.
func numberAttribute(v value, name string) (value, bool) {
	_, isFloat := v.(float64)
	switch name {
	case "real", "numerator":
		if isFloat && name != "real" {
			return nil, false
		}
		return unary("+", v), true
	case "imag":
		if isFloat {
			return 0.0, true
		}
		return int64(0), true
	case "denominator":
		return int64(1), !isFloat
	case "is_integer":
		f, _ := v.(float64)
		return &method{name, func(*run, arguments) value { return f == math.Trunc(f) }}, isFloat
	case "bit_length", "bit_count", "conjugate", "to_bytes", "from_bytes", "as_integer_ratio", "hex", "fromhex":
		return &method{name, func(*run, arguments) value {
			fail("the method %s of a number is not supported in chat templates", name)
			return nil
		}}, true
	}
	return nil, false
}
