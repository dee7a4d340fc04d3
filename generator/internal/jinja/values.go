package jinja

import (
	"math"
	"slices"

	"reel.internal/reel/generator/internal/marked"
)

// value is a Python object: nil (None), bool, int64, float64, str, or a pointer to one of the
// types below. Lists, tuples and dicts never change, since the sandbox forbids that.
type value = any

type (
	list  struct{ items []value }
	tuple struct {
		items  []value
		fields []string // names of the items of a named tuple, or nil
	}
	// rangeObject is Python's range.
	rangeObject struct{ start, stop, step int64 }
	// view is a dict's keys, values or items.
	view struct {
		dict *dict
		kind string // of "keys", "values", "items"
	}
	// iterator is an iterator or a generator: its items can be read once.
	iterator struct {
		next pull
		name string // of its type
	}
	// namespace is Jinja2's namespace, the only object that a template can change.
	namespace struct{ dict *dict }
	// undefined is Jinja2's Undefined. It is false, empty, and an error in most other uses.
	undefined struct {
		hint  string
		of    value // with ofSet: the object without that attribute or item
		ofSet bool
		name  value
	}
	// method is a function of Python or Jinja2.
	method struct {
		name string
		call func(r *run, a arguments) value
	}
	cycler struct {
		items []value
		at    int
	}
	// templateReference is the variable self.
	templateReference struct{ _ byte }
	joiner            struct {
		separator value
		used      bool
	}
)

// pull returns the next item, and false after the last one.
type pull func() (value, bool)

// message is the error for a use of an undefined value.
func (u *undefined) message() string {
	name, isName := u.name.(str)
	switch {
	case u.hint != "":
		return u.hint
	case !u.ofSet:
		return "'" + name.text + "' is undefined"
	case isName:
		return "'" + objectName(u.of) + "' has no attribute '" + name.text + "'"
	}
	return objectName(u.of) + " has no element " + reprShort(u.name)
}

func (u *undefined) fail() { fail("%s", u.message()) }

// checkDefined fails if a value is undefined.
func checkDefined(values ...value) {
	for _, v := range values {
		if u, ok := v.(*undefined); ok {
			u.fail()
		}
	}
}

// objectName is Jinja2's name of an object's type in errors.
func objectName(v value) string {
	if v == nil {
		return "None"
	}
	return typeName(v) + " object"
}

// typeName returns the name of a value's type in Python.
func typeName(v value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case str:
		if v.html {
			return "Markup"
		}
		return "str"
	case *list:
		return "list"
	case *tuple:
		return "tuple"
	case *dict:
		return "dict"
	case *rangeObject:
		return "range"
	case *view:
		return "dict_" + v.kind
	case *iterator:
		return v.name
	case *namespace:
		return "Namespace"
	case *undefined:
		return "Undefined"
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	case *templateReference:
		return "TemplateReference"
	}
	return "function"
}

// truth is Python's bool(v).
func truth(v value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case str:
		return v.text != ""
	}
	n, sized := length(v)
	return !sized || n > 0
}

// length is Python's len(v), or false if v has none.
func length(v value) (int, bool) {
	switch v := v.(type) {
	case str:
		return v.length(), true
	case *list:
		return len(v.items), true
	case *tuple:
		return len(v.items), true
	case *dict:
		return len(v.keys), true
	case *view:
		return len(v.dict.keys), true
	case *rangeObject:
		return v.length(), true
	case *loop:
		return v.length(), true
	case *undefined:
		return 0, true
	}
	return 0, false
}

// length of a range. It is at most maxRange.
func (o *rangeObject) length() int {
	switch {
	case o.step > 0 && o.start < o.stop:
		return int((uint64(o.stop)-uint64(o.start)-1)/uint64(o.step) + 1)
	case o.step < 0 && o.start > o.stop:
		return int((uint64(o.start)-uint64(o.stop)-1)/(-uint64(o.step)) + 1)
	}
	return 0
}

// Dict is a dict in a given order.
type Dict []Pair

// Pair is a key, which is data, with its value.
type Pair struct {
	Key   string
	Value any
}

// convert converts a caller's value.
func convert(v any) value {
	switch v := v.(type) {
	case nil, bool, int64, float64:
		return v
	case int:
		return int64(v)
	case uint64:
		if v > math.MaxInt64 {
			fail("the number %d has more than 64 bits", v)
		}
		return int64(v)
	case string:
		return str{text: v, data: true}
	case marked.Text:
		return fromMarked(v)
	case []any:
		l := &list{make([]value, len(v))}
		for i, item := range v {
			l.items[i] = convert(item)
		}
		return l
	case map[string]any:
		d := newDict(len(v))
		for _, key := range sortedKeys(v) {
			d.set(str{text: key, data: true}, convert(v[key]))
		}
		return d
	case Dict:
		d := newDict(len(v))
		for _, pair := range v {
			d.set(str{text: pair.Key, data: true}, convert(pair.Value))
		}
		return d
	}
	fail("a value of type %T cannot be given to a template", v)
	return nil
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
