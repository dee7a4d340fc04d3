package jinja

import (
	"math"
	"math/big"
	"strings"
)

// maxDepth bounds the nesting of values that are compared or printed.
const maxDepth = 500

// compare is a comparison of Python.
func compare(op string, left, right value) bool {
	switch op {
	case "==":
		return equal(left, right)
	case "!=":
		return !equal(left, right)
	case "in":
		return contains(right, left)
	case "not in":
		return !contains(right, left)
	}
	checkDefined(left, right)
	c, ordered := order(left, right, op, 0)
	if !ordered { // a number that is not a number
		return false
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// equal is Python's left == right.
func equal(left, right value) bool { return equalWithin(left, right, 0) }

func equalWithin(left, right value, depth int) bool {
	checkDepth(depth)
	if _, ok := float(left); ok {
		if _, ok := float(right); !ok {
			return false
		}
		c, ordered := orderNumbers(left, right)
		return ordered && c == 0
	}
	switch l := left.(type) {
	case str:
		r, ok := right.(str)
		return ok && l.text == r.text
	case *list:
		r, ok := right.(*list)
		return ok && (l == r || equalItems(l.items, r.items, depth))
	case *tuple:
		r, ok := right.(*tuple)
		return ok && (l == r || equalItems(l.items, r.items, depth))
	case *dict:
		r, ok := right.(*dict)
		return ok && (l == r || equalDicts(l, r, depth))
	case *rangeObject:
		r, ok := right.(*rangeObject)
		return ok && equalRanges(l, r)
	case *undefined:
		_, ok := right.(*undefined)
		return ok
	case *view:
		r, ok := right.(*view)
		return ok && equalViews(l, r, depth)
	}
	return left == right // the same object, or both None
}

func checkDepth(depth int) {
	if depth > maxDepth {
		fail("more than %d values are nested", maxDepth)
	}
}

func equalItems(left, right []value, depth int) bool {
	if len(left) != len(right) {
		return false
	}
	for i := range left {
		if !equalWithin(left[i], right[i], depth+1) {
			return false
		}
	}
	return true
}

func equalDicts(left, right *dict, depth int) bool {
	if len(left.keys) != len(right.keys) {
		return false
	}
	for i, key := range left.keys {
		v, ok := right.get(key)
		if !ok || !equalWithin(left.values[i], v, depth+1) {
			return false
		}
	}
	return true
}

func equalRanges(a, b *rangeObject) bool {
	n := a.length()
	return n == b.length() && (n == 0 || a.start == b.start && (n == 1 || a.step == b.step))
}

// equalViews compares keys or items as sets; values are only equal to themselves.
func equalViews(a, b *view, depth int) bool {
	if a == b || a.kind == "values" || a.kind != b.kind {
		return a == b
	}
	if a.kind == "items" {
		return equalDicts(a.dict, b.dict, depth)
	}
	for _, key := range a.dict.keys {
		if _, ok := b.dict.get(key); !ok {
			return false
		}
	}
	return len(a.dict.keys) == len(b.dict.keys)
}

// order returns the sign of left-right. It fails for values without an order, and returns false
// if one is not a number.
func order(left, right value, op string, depth int) (int, bool) {
	checkDepth(depth)
	_, leftNumber := float(left)
	_, rightNumber := float(right)
	if leftNumber && rightNumber {
		return orderNumbers(left, right)
	}
	switch l := left.(type) {
	case str:
		if r, ok := right.(str); ok {
			return strings.Compare(l.text, r.text), true
		}
	case *list:
		if r, ok := right.(*list); ok {
			return orderItems(l.items, r.items, op, depth)
		}
	case *tuple:
		if r, ok := right.(*tuple); ok {
			return orderItems(l.items, r.items, op, depth)
		}
	}
	checkDefined(left, right)
	fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(left), typeName(right))
	return 0, false
}

func orderItems(left, right []value, op string, depth int) (int, bool) {
	for i := range min(len(left), len(right)) {
		if !equalWithin(left[i], right[i], depth+1) {
			return order(left[i], right[i], op, depth+1)
		}
	}
	return len(left) - len(right), true
}

// orderNumbers returns the sign of left-right of two numbers.
func orderNumbers(left, right value) (int, bool) {
	a, leftInt := integer(left)
	b, rightInt := integer(right)
	if leftInt && rightInt {
		switch {
		case a < b:
			return -1, true
		case a > b:
			return 1, true
		}
		return 0, true
	}
	x, _ := float(left)
	y, _ := float(right)
	if math.IsNaN(x) || math.IsNaN(y) {
		return 0, false
	}
	return exactly(left, x).Cmp(exactly(right, y)), true
}

// exactly returns a number without rounding.
func exactly(v value, f float64) *big.Float {
	if i, ok := integer(v); ok {
		return new(big.Float).SetInt64(i)
	}
	return new(big.Float).SetFloat64(f)
}

// contains is Python's v in of.
func contains(of, v value) bool {
	switch of := of.(type) {
	case str:
		s, ok := v.(str)
		if !ok {
			fail("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(of.text, s.text)
	case *dict:
		_, ok := of.get(v)
		return ok
	case *view:
		if of.kind == "keys" {
			_, ok := of.dict.get(v)
			return ok
		}
	case *rangeObject:
		return of.contains(v)
	}
	next, ok := tryIterate(of)
	if !ok {
		fail("argument of type '%s' is not iterable", typeName(of))
	}
	for item, ok := next(); ok; item, ok = next() {
		if equal(item, v) {
			return true
		}
	}
	return false
}

func (o *rangeObject) contains(v value) bool {
	f, ok := float(v)
	i := int64(f)
	if !ok || float64(i) != f {
		return false
	}
	if exact, ok := integer(v); ok {
		i = exact
	}
	offset := i - o.start
	return offset%o.step == 0 && offset/o.step >= 0 && offset/o.step < int64(o.length())
}
