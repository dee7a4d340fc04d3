package jinja

import (
	"slices"
	"strconv"
)

// addListFilters adds the filters that read all items of their value at once.
func addListFilters(m map[string]*builtin) {
	m["dictsort"] = &builtin{params: []string{"case_sensitive", "by", "reverse"}, call: dictSort}
	m["first"] = &builtin{call: func(r *run, v value, _ []value) value {
		return firstOf(iterate(r, v), "No first item, sequence was empty.")
	}}
	m["last"] = &builtin{call: func(_ *run, v value, _ []value) value {
		next, ok := reversed(v)
		if !ok {
			fail("'%s' object is not reversible", typeName(v))
		}
		return firstOf(next, "No last item, sequence was empty.")
	}}
	m["groupby"] = &builtin{params: []string{"attribute", "default", "case_sensitive"}, required: 1, call: groupBy}
	m["list"] = &builtin{call: func(r *run, v value, _ []value) value { return &list{collect(r, v)} }}
	extreme := []string{"case_sensitive", "attribute"}
	m["min"] = &builtin{params: extreme, call: func(r *run, v value, p []value) value { return best(r, v, p, -1) }}
	m["max"] = &builtin{params: extreme, call: func(r *run, v value, p []value) value { return best(r, v, p, 1) }}
	m["reverse"] = &builtin{call: reverse}
	m["sort"] = &builtin{params: []string{"reverse", "case_sensitive", "attribute"}, call: sortFilter}
	m["sum"] = &builtin{params: []string{"attribute", "start"}, call: sum}
}

func firstOf(next pull, hint string) value {
	if item, ok := next(); ok {
		return item
	}
	return &undefined{hint: hint}
}

// attributeGetter returns a function that looks up an attribute such as "a.b.0". Undefined
// values become alternative, unless that is None.
func attributeGetter(attribute, alternative value) func(value) value {
	var parts []value
	switch a := attribute.(type) {
	case nil:
	case str:
		for _, part := range a.splitBy(".", maxItems, false) {
			name := part.(str)
			if i, err := strconv.ParseInt(name.text, 10, 64); err == nil && name.every(isDigit) {
				parts = append(parts, i)
			} else {
				parts = append(parts, name)
			}
		}
	default:
		parts = []value{a}
	}
	return func(v value) value {
		for _, part := range parts {
			v = getItem(v, part)
			if _, ok := v.(*undefined); ok && alternative != nil {
				v = alternative
			}
		}
		return v
	}
}

// ignoreCase returns strings in lower case unless sensitive is true.
func ignoreCase(v value, sensitive bool) value {
	if s, ok := v.(str); ok && !sensitive {
		return s.lower()
	}
	return v
}

// orderOf is order for sorting.
func orderOf(a, b value) int {
	c, _ := order(a, b, "<", 0)
	return c
}

// sorted sorts items by their keys, and keeps the order of equal ones.
func sorted(items []value, key func(value) value, reverse bool) []value {
	type pair struct{ key, item value }
	pairs := make([]pair, len(items))
	for i, item := range items {
		pairs[i] = pair{key(item), item}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if reverse {
			return orderOf(b.key, a.key)
		}
		return orderOf(a.key, b.key)
	})
	result := make([]value, len(items))
	for i, p := range pairs {
		result[i] = p.item
	}
	return result
}

func sortFilter(r *run, v value, p []value) value {
	sensitive := truth(or(p[1], false))
	var getters []func(value) value
	switch a := or(p[2], nil).(type) {
	case str:
		for _, one := range a.splitBy(",", maxItems, false) {
			getters = append(getters, attributeGetter(one, nil))
		}
	default:
		getters = append(getters, attributeGetter(a, nil))
	}
	key := func(item value) value {
		keys := &list{}
		for _, get := range getters {
			keys.items = append(keys.items, ignoreCase(get(item), sensitive))
		}
		return keys
	}
	return &list{sorted(collect(r, v), key, truth(or(p[0], false)))}
}

func dictSort(_ *run, v value, p []value) value {
	checkDefined(v)
	d, ok := v.(*dict)
	if !ok {
		fail("'%s' object has no attribute 'items'", typeName(v))
	}
	at := slices.Index([]string{"key", "value"}, textOf(or(p[1], literal("key")), "dictsort").text)
	if at < 0 {
		fail("you can only sort by either \"key\" or \"value\"")
	}
	sensitive := truth(or(p[0], false))
	key := func(item value) value { return ignoreCase(item.(*tuple).items[at], sensitive) }
	return &list{sorted((&view{d, "items"}).items(), key, truth(or(p[2], false)))}
}

func groupBy(r *run, v value, p []value) value {
	sensitive := truth(or(p[2], false))
	get := attributeGetter(p[0], or(p[1], nil))
	key := func(item value) value { return ignoreCase(get(item), sensitive) }
	groups := &list{}
	var last value
	for i, item := range sorted(collect(r, v), key, false) {
		if k := key(item); i == 0 || !equal(k, last) {
			last = k
			groups.items = append(groups.items, &tuple{[]value{get(item), &list{}}, []string{"grouper", "list"}})
		}
		members := groups.items[len(groups.items)-1].(*tuple).items[1].(*list)
		members.items = append(members.items, item)
	}
	return groups
}

// best returns the first item whose key is the least, or the greatest if sign is positive.
func best(r *run, v value, p []value, sign int) value {
	sensitive, get := truth(or(p[0], false)), attributeGetter(or(p[1], nil), nil)
	items := collect(r, v)
	if len(items) == 0 {
		return &undefined{hint: "No aggregated item, sequence was empty."}
	}
	found := items[0]
	key := ignoreCase(get(found), sensitive)
	for _, item := range items[1:] {
		if k := ignoreCase(get(item), sensitive); orderOf(k, key)*sign > 0 {
			found, key = item, k
		}
	}
	return found
}

func reverse(r *run, v value, _ []value) value {
	if s, ok := v.(str); ok {
		return slice(s, nil, nil, int64(-1))
	}
	next, ok := reversed(v)
	if !ok {
		items := slices.Clone(collect(r, v))
		slices.Reverse(items)
		return &list{items}
	}
	name := "reversed"
	switch v.(type) {
	case *list:
		name = "list_reverseiterator"
	case *dict:
		name = "dict_reversekeyiterator"
	}
	return &iterator{next, name}
}

func sum(r *run, v value, p []value) value {
	total, get := or(p[1], int64(0)), attributeGetter(or(p[0], nil), nil)
	if _, ok := total.(str); ok {
		fail("sum() can't sum strings")
	}
	next := iterate(r, v)
	for item, ok := next(); ok; item, ok = next() {
		total = binary(r, "+", total, get(item))
	}
	return total
}
