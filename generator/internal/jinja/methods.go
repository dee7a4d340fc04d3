package jinja

import "slices"

// methodOf is a method of a Python type.
type methodOf struct {
	params   []string
	required int
	named    bool // whether arguments may have names
	call     func(r *run, of value, p []value) value
	free     func(r *run, of value, a arguments) value // instead of call, for any arguments
}

func (m methodOf) apply(r *run, of value, a arguments) value {
	if m.free != nil {
		return m.free(r, of, a)
	}
	if !m.named {
		a.noNames("the method")
	}
	return m.call(r, of, a.bind("the method", m.required, m.params...))
}

// methods are the methods of Python's types that the sandbox allows.
var methods map[string]map[string]methodOf

func init() {
	methods = map[string]map[string]methodOf{
		"str": stringMethods(), "Markup": stringMethods(),
		"dict": {
			"get":      {[]string{"key", "default"}, 1, false, dictGet, nil},
			"items":    dictView("items"),
			"keys":     dictView("keys"),
			"values":   dictView("values"),
			"copy":     {call: func(_ *run, of value, _ []value) value { d := *of.(*dict); return &d }},
			"fromkeys": unsupported("fromkeys"),
		},
		"list": {
			"index": {[]string{"value", "start", "stop"}, 1, false, indexOf, nil},
			"count": {[]string{"value"}, 1, false, countOf, nil},
			"copy":  {call: func(_ *run, of value, _ []value) value { l := *of.(*list); return &l }},
		},
		"tuple": {
			"index": {[]string{"value", "start", "stop"}, 1, false, indexOf, nil},
			"count": {[]string{"value"}, 1, false, countOf, nil},
		},
		"range": {
			"index": {[]string{"value"}, 1, false, indexOf, nil},
			"count": {[]string{"value"}, 1, false, countOf, nil},
		},
		"dict_keys":  {"isdisjoint": unsupported("isdisjoint"), "mapping": unsupported("mapping")},
		"dict_items": {"isdisjoint": unsupported("isdisjoint"), "mapping": unsupported("mapping")},
	}
}

// unsupported is a method that Python has and chat templates do not need.
func unsupported(name string) methodOf {
	return methodOf{free: func(_ *run, of value, _ arguments) value {
		fail("the method %s of %s is not supported in chat templates", name, typeName(of))
		return nil
	}}
}

func dictView(kind string) methodOf {
	return methodOf{call: func(_ *run, of value, _ []value) value { return &view{of.(*dict), kind} }}
}

func dictGet(_ *run, of value, p []value) value {
	if v, ok := of.(*dict).get(p[0]); ok {
		return v
	}
	return or(p[1], nil)
}

func indexOf(r *run, of value, p []value) value {
	items, first := collect(r, of), 0
	if len(p) > 1 {
		b := sliceBounds(len(items), or(p[1], nil), or(p[2], nil), nil)
		first, items = b.first, stride(items, b)
	}
	i := slices.IndexFunc(items, func(v value) bool { return equal(v, p[0]) })
	if i < 0 {
		fail("%s is not in the %s", reprShort(p[0]), typeName(of))
	}
	return int64(first + i)
}

func countOf(r *run, of value, p []value) value {
	n := int64(0)
	for _, v := range collect(r, of) {
		if equal(v, p[0]) {
			n++
		}
	}
	return n
}

// text returns a parameter that must be a string.
func textOf(v value, method string) str {
	checkDefined(v)
	s, ok := v.(str)
	if !ok {
		fail("%s: a string is required, not %s", method, typeName(v))
	}
	return s
}

// numberOf returns a parameter that must be an integer.
func numberOf(v value, what string) int64 {
	checkDefined(v)
	i, ok := integer(v)
	if !ok {
		fail("%s: an integer is required, not %s", what, typeName(v))
	}
	return i
}

// boundOf is numberOf for a length that is at most the largest text's.
func boundOf(v value, what string) int { return int(min(max(numberOf(v, what), -1), maxText)) }
