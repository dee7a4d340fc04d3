package jinja

import (
	"math"
)

// filters are the filters of Jinja2, with tojson as transformers has it.
var filters map[string]*builtin

func init() {
	filters = map[string]*builtin{
		"abs":            {call: absolute},
		"attr":           {params: []string{"name"}, required: 1, call: attrFilter},
		"count":          {call: lengthFilter},
		"default":        {params: []string{"default_value", "boolean"}, call: defaultFilter},
		"filesizeformat": {params: []string{"binary"}, call: fileSize},
		"float":          {params: []string{"default"}, call: floatFilter},
		"int":            {params: []string{"default", "base"}, call: intFilter},
		"length":         {call: lengthFilter},
		"round":          {params: []string{"precision", "method"}, call: roundFilter},
		"tojson":         {params: []string{"ensure_ascii", "indent", "separators", "sort_keys"}, call: toJSON},
	}
	filters["d"] = filters["default"]
	addTextFilters(filters)
	addListFilters(filters)
	addLazyFilters(filters)
}

func absolute(_ *run, v value, _ []value) value {
	if i, ok := integer(v); ok {
		if i < 0 {
			return unary("-", i)
		}
		return i
	}
	f, ok := v.(float64)
	if !ok {
		fail("bad operand type for abs(): '%s'", typeName(v))
	}
	return math.Abs(f)
}

// attrFilter returns an attribute, and never an item.
func attrFilter(_ *run, v value, p []value) value {
	checkDefined(v)
	name := textOf(p[0], "attr")
	if found, ok := attribute(v, name.text); ok {
		return found
	}
	return &undefined{of: v, ofSet: true, name: name}
}

func lengthFilter(_ *run, v value, _ []value) value {
	n, ok := length(v)
	if !ok {
		fail("object of type '%s' has no len()", typeName(v))
	}
	return int64(n)
}

func defaultFilter(_ *run, v value, p []value) value {
	_, isUndefined := v.(*undefined)
	if isUndefined || truth(or(p[1], false)) && !truth(v) {
		return or(p[0], literal(""))
	}
	return v
}

func fileSize(r *run, v value, p []value) value {
	size, ok := toFloat(v)
	if !ok {
		fail("filesizeformat: '%s' is no number", typeName(v))
	}
	base, units := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if truth(or(p[0], false)) {
		base, units = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	if size == 1 {
		return literal("1 Byte")
	}
	if size < base {
		i, _ := toInt(size)
		return literal(atomText(i) + " Bytes")
	}
	unit, scale := "", base
	for _, unit = range units {
		if scale *= base; size < scale {
			break
		}
	}
	return literal(formatFloat(base*size/scale, 'f', 1, false) + " " + unit)
}

// toFloat is Python's float(v), or false for a TypeError or ValueError.
func toFloat(v value) (float64, bool) {
	checkDefined(v)
	if s, ok := v.(str); ok {
		return parseFloat(s.text)
	}
	return float(v)
}

func floatFilter(_ *run, v value, p []value) value {
	if f, ok := toFloat(v); ok {
		return f
	}
	return or(p[0], 0.0)
}

func intFilter(_ *run, v value, p []value) value {
	checkDefined(v)
	base := numberOf(or(p[1], int64(10)), "int")
	switch v := v.(type) {
	case str:
		if i, ok := parseInt(v.text, base); ok {
			return i
		}
		if f, ok := parseFloat(v.text); ok && !math.IsInf(f, 0) {
			if i, ok := toInt(f); ok {
				return i
			}
		}
	case float64:
		if i, ok := toInt(v); ok {
			return i
		}
	default:
		if i, ok := integer(v); ok {
			return i
		}
	}
	return or(p[0], int64(0))
}

func roundFilter(_ *run, v value, p []value) value {
	digits := numberOf(or(p[0], int64(0)), "round")
	method := textOf(or(p[1], literal("common")), "round").text
	if _, ok := float(v); !ok {
		fail("type %s cannot be rounded", typeName(v))
	}
	if method == "common" {
		return round(v, digits)
	}
	scale := binary(nil, "**", int64(10), digits)
	x, _ := float(binary(nil, "*", v, scale))
	switch method {
	case "ceil":
		x = math.Ceil(x)
	case "floor":
		x = math.Floor(x)
	default:
		fail("method must be common, ceil or floor")
	}
	whole, ok := toInt(x)
	if !ok {
		fail("cannot round a value that is not a number")
	}
	return binary(nil, "/", whole, scale)
}
