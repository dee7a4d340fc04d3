package jinja

import "unicode/utf8"

// pullOf returns the items of a slice.
func pullOf(items []value) pull {
	i := 0
	return func() (value, bool) {
		if i == len(items) {
			return nil, false
		}
		i++
		return items[i-1], true
	}
}

// tryIterate is Python's iter(v), or false if v is not iterable.
func tryIterate(v value) (pull, bool) {
	switch v := v.(type) {
	case str:
		return v.pull(), true
	case *list:
		return pullOf(v.items), true
	case *tuple:
		return pullOf(v.items), true
	case *dict:
		return pullOf(v.keys), true
	case *view:
		return pullOf(v.items()), true
	case *rangeObject:
		return v.pull(), true
	case *iterator:
		return v.next, true
	case *undefined:
		return pullOf(nil), true
	case *loop:
		return func() (value, bool) {
			if !v.advance() {
				return nil, false
			}
			return &tuple{items: []value{v.current, v}}, true
		}, true
	}
	return nil, false
}

// iterate is tryIterate, which fails if v is not iterable.
func iterate(_ *run, v value) pull {
	next, ok := tryIterate(v)
	if !ok {
		fail("'%s' object is not iterable", typeName(v))
	}
	return next
}

// collect returns the items of v.
func collect(r *run, v value) []value {
	switch v := v.(type) {
	case *list:
		return v.items
	case *tuple:
		return v.items
	}
	return take(r, v, maxItems+1)
}

// take returns at most n items of v.
func take(r *run, v value, n int) (items []value) {
	next := iterate(r, v)
	for len(items) < n {
		item, ok := next()
		if !ok {
			return items
		}
		items = append(items, item)
	}
	checkItems(len(items))
	return items
}

// maxItems bounds the length of a list.
const maxItems = 1 << 20

func checkItems(n int) {
	if n > maxItems {
		fail("a list of more than %d items", maxItems)
	}
}

// pull returns the characters of s.
func (s str) pull() pull {
	at := 0
	return func() (value, bool) {
		if at == len(s.text) {
			return nil, false
		}
		_, n := utf8.DecodeRuneInString(s.text[at:])
		c := s.slice(at, at+n)
		c.html = false
		at += n
		return c, true
	}
}

func (o *rangeObject) pull() pull {
	i, n := 0, o.length()
	return func() (value, bool) {
		if i == n {
			return nil, false
		}
		i++
		return o.start + int64(i-1)*o.step, true
	}
}

// items returns a view's items.
func (v *view) items() []value {
	switch v.kind {
	case "keys":
		return v.dict.keys
	case "values":
		return v.dict.values
	}
	items := make([]value, len(v.dict.keys))
	for i, key := range v.dict.keys {
		items[i] = &tuple{items: []value{key, v.dict.values[i]}}
	}
	return items
}

// reversed is Python's reversed(v), or false if v cannot be reversed.
func reversed(v value) (pull, bool) {
	var items []value
	switch v := v.(type) {
	case str:
		items = v.chars()
	case *list:
		items = v.items
	case *tuple:
		items = v.items
	case *dict:
		items = v.keys
	case *view:
		items = v.items()
	case *rangeObject:
		items = take(nil, v, maxItems)
	case *undefined:
	default:
		return nil, false
	}
	i := len(items)
	return func() (value, bool) {
		if i == 0 {
			return nil, false
		}
		i--
		return items[i], true
	}, true
}

// generator returns a generator of items.
func generator(next pull) *iterator { return &iterator{next, "generator"} }
