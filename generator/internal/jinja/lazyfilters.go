package jinja

// addLazyFilters adds the filters that return a generator: they read their value's items when
// theirs are read.
func addLazyFilters(m map[string]*builtin) {
	m["batch"] = &builtin{params: []string{"linecount", "fill_with"}, required: 1, call: batch}
	m["items"] = &builtin{call: itemsFilter}
	m["map"] = &builtin{free: mapFilter}
	for name, o := range map[string]selection{
		"select": {true, false}, "reject": {false, false}, "selectattr": {true, true}, "rejectattr": {false, true},
	} {
		m[name] = &builtin{free: o.filter}
	}
	m["slice"] = &builtin{params: []string{"slices", "fill_with"}, required: 1, call: sliceFilter}
	m["unique"] = &builtin{params: []string{"case_sensitive", "attribute"}, call: unique}
}

// lazily returns a generator of the items of start's result. start is called for the first item.
func lazily(start func() pull) *iterator {
	var next pull
	return generator(func() (value, bool) {
		if next == nil {
			next = start()
		}
		return next()
	})
}

func itemsFilter(_ *run, v value, _ []value) value {
	return lazily(func() pull {
		switch v := v.(type) {
		case *undefined:
			return pullOf(nil)
		case *dict:
			return pullOf((&view{v, "items"}).items())
		}
		fail("can only get item pairs from a mapping")
		return nil
	})
}

func mapFilter(r *run, v value, a arguments) value {
	return lazily(func() pull {
		if !truth(v) {
			return pullOf(nil)
		}
		f, next := mapping(r, a), iterate(r, v)
		return func() (value, bool) {
			item, ok := next()
			if !ok {
				return nil, false
			}
			return f(item), true
		}
	})
}

// mapping returns the function that the filter map applies: an attribute, or a filter.
func mapping(r *run, a arguments) func(value) value {
	if attribute, ok := a.pop("attribute"); ok && len(a.positional) == 0 {
		alternative, _ := a.pop("default")
		if len(a.names) > 0 {
			fail("unexpected keyword argument '%.100s'", a.names[0].text)
		}
		return attributeGetter(attribute, alternative)
	}
	if len(a.positional) == 0 {
		fail("map requires a filter argument")
	}
	name := textOf(a.positional[0], "map").text
	f := filters[name]
	if f == nil {
		fail("no filter named %.100s", name)
	}
	rest := arguments{a.positional[1:], a.names, a.named}
	return func(v value) value { return f.apply(r, v, rest) }
}

// selection is one of the filters select, reject, selectattr and rejectattr.
type selection struct{ keep, attribute bool }

func (s selection) filter(r *run, v value, a arguments) value {
	return lazily(func() pull {
		if !truth(v) {
			return pullOf(nil)
		}
		test, next := s.test(r, a), iterate(r, v)
		return func() (value, bool) {
			for {
				item, ok := next()
				if !ok || test(item) == s.keep {
					return item, ok
				}
			}
		}
	})
}

// test returns the test of an item.
func (s selection) test(r *run, a arguments) func(value) bool {
	get := func(v value) value { return v }
	if s.attribute {
		if len(a.positional) == 0 {
			fail("missing parameter for attribute name")
		}
		get = attributeGetter(a.positional[0], nil)
		a.positional = a.positional[1:]
	}
	if len(a.positional) == 0 {
		return func(v value) bool { return truth(get(v)) }
	}
	name := textOf(a.positional[0], "select").text
	t := tests[name]
	if t == nil {
		fail("no test named %.100s", name)
	}
	rest := arguments{a.positional[1:], a.names, a.named}
	return func(v value) bool { return truth(t.apply(r, get(v), rest)) }
}

func unique(r *run, v value, p []value) value {
	sensitive, get := truth(or(p[0], false)), attributeGetter(or(p[1], nil), nil)
	return lazily(func() pull {
		next, seen := iterate(r, v), map[hash]bool{}
		return func() (value, bool) {
			for {
				item, ok := next()
				if !ok {
					return nil, false
				}
				if h := hashOf(ignoreCase(get(item), sensitive)); !seen[h] {
					seen[h] = true
					return item, true
				}
			}
		}
	})
}

func batch(r *run, v value, p []value) value {
	size, fill := numberOf(p[0], "batch"), or(p[1], nil)
	return lazily(func() pull {
		next := iterate(r, v)
		item, more := next()
		return func() (value, bool) {
			if !more {
				return nil, false
			}
			line := &list{}
			for ; more && (len(line.items) == 0 || int64(len(line.items)) != size); item, more = next() {
				line.items = append(line.items, item)
			}
			for !more && fill != nil && int64(len(line.items)) < size {
				line.items = append(line.items, fill)
				checkItems(len(line.items))
			}
			return line, true
		}
	})
}

func sliceFilter(r *run, v value, p []value) value {
	slices, fill := numberOf(p[0], "slice"), or(p[1], nil)
	return lazily(func() pull {
		items := collect(r, v)
		if slices == 0 {
			fail("division by zero")
		}
		size, extra := int64(len(items))/slices, int64(len(items))%slices
		i, at := int64(0), int64(0)
		return func() (value, bool) {
			if i >= slices {
				return nil, false
			}
			n := size
			if i < extra {
				n++
			}
			part := &list{append([]value(nil), items[at:at+n]...)}
			if fill != nil && i >= extra {
				part.items = append(part.items, fill)
			}
			at += n
			i++
			return part, true
		}
	})
}
