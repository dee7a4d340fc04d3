package jinja

// tests are the tests of Jinja2.
var tests map[string]*builtin

func init() {
	tests = map[string]*builtin{}
	is := func(name string, f func(v value) bool) {
		tests[name] = &builtin{call: func(_ *run, v value, _ []value) value { return f(v) }}
	}
	is("boolean", func(v value) bool { _, ok := v.(bool); return ok })
	is("defined", func(v value) bool { return !isUndefined(v) })
	is("undefined", isUndefined)
	is("none", func(v value) bool { return v == nil })
	is("true", func(v value) bool { b, ok := v.(bool); return ok && b })
	is("false", func(v value) bool { b, ok := v.(bool); return ok && !b })
	is("integer", func(v value) bool { _, ok := v.(int64); return ok })
	is("float", func(v value) bool { _, ok := v.(float64); return ok })
	is("number", func(v value) bool { _, ok := float(v); return ok })
	is("string", func(v value) bool { _, ok := v.(str); return ok })
	is("mapping", func(v value) bool { _, ok := v.(*dict); return ok })
	is("iterable", func(v value) bool { _, ok := tryIterate(v); return ok })
	is("sequence", isSequence)
	is("callable", isCallable)
	is("escaped", func(v value) bool { s, ok := v.(str); return ok && s.html })
	is("odd", func(v value) bool { return equal(binary(nil, "%", v, int64(2)), int64(1)) })
	is("even", func(v value) bool { return equal(binary(nil, "%", v, int64(2)), int64(0)) })
	is("filter", func(v value) bool { name, _ := hashOf(v).(string); return filters[name] != nil })
	is("test", func(v value) bool { name, _ := hashOf(v).(string); return tests[name] != nil })
	tests["lower"] = &builtin{call: func(r *run, v value, _ []value) value { return r.text(v).isLower() }}
	tests["upper"] = &builtin{call: func(r *run, v value, _ []value) value { return r.text(v).isUpper() }}
	tests["divisibleby"] = &builtin{params: []string{"num"}, required: 1, call: func(r *run, v value, p []value) value {
		return equal(binary(r, "%", v, p[0]), int64(0))
	}}
	tests["in"] = &builtin{params: []string{"seq"}, required: 1, call: func(r *run, v value, p []value) value {
		return contains(p[0], v)
	}}
	tests["sameas"] = &builtin{params: []string{"other"}, required: 1, call: func(_ *run, v value, p []value) value {
		return same(v, p[0])
	}}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"}, ">": {"gt", "greaterthan"}, ">=": {"ge"}, "<": {"lt", "lessthan"},
		"<=": {"le"},
	} {
		for _, name := range append(names, op) {
			tests[name] = &builtin{[]string{"other"}, 1, func(r *run, v value, p []value) value {
				return compare(op, v, p[0])
			}, nil}
		}
	}
}

func isUndefined(v value) bool { _, ok := v.(*undefined); return ok }

func isSequence(v value) bool {
	switch v.(type) {
	case str, *list, *tuple, *dict, *rangeObject, *undefined:
		return true
	}
	return false
}

func isCallable(v value) bool {
	switch v.(type) {
	case *macro, *method, *joiner, *loop, *undefined:
		return true
	}
	return false
}

// same reports whether two values are one object. Python shares None, booleans, small integers
// and most strings of a template.
func same(a, b value) bool {
	switch a := a.(type) {
	case str:
		b, ok := b.(str)
		return ok && a.text == b.text
	case *undefined:
		b, ok := b.(*undefined)
		return ok && a == b
	}
	if _, ok := b.(str); ok {
		return false
	}
	return a == b
}
