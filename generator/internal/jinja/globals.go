package jinja

import (
	"strings"

	"github.com/ncruces/go-strftime"
)

// globals are the functions that each template has: those of Jinja2 and transformers, except for
// random text.
var globals map[string]value

func init() {
	globals = map[string]value{}
	for name, f := range map[string]func(r *run, a arguments) value{
		"range": makeRange, "dict": func(r *run, a arguments) value { return makeDict(r, "dict", a) },
		"namespace": func(r *run, a arguments) value { return &namespace{makeDict(r, "namespace", a)} },
		"cycler":    makeCycler, "joiner": makeJoiner, "lipsum": noLipsum,
		"raise_exception": raise, "strftime_now": now,
	} {
		globals[name] = &method{name, f}
	}
}

// Names returns the names of Jinja2's and transformers' functions, filters and tests.
func Names() (all []string) {
	for name := range globals {
		all = append(all, name)
	}
	for name := range filters {
		all = append(all, name)
	}
	for name := range tests {
		all = append(all, name)
	}
	return all
}

func noLipsum(*run, arguments) value {
	fail("the function lipsum is not supported in chat templates")
	return nil
}

func raise(r *run, a arguments) value {
	message := r.text(a.bind("raise_exception", 1, "message")[0]).text
	panic(&Error{Text: message, Kind: ErrRaised})
}

// withoutZone removes the time zone from a format: the time in transformers has none.
var withoutZone = strings.NewReplacer("%%", "%%", "%z", "", "%Z", "")

func now(r *run, a arguments) value {
	format := textOf(a.bind("strftime_now", 1, "format")[0], "strftime_now")
	return format.as(strftime.Format(withoutZone.Replace(format.text), r.now))
}

// maxRange is the largest length of a range, as in Jinja2's sandbox.
const maxRange = 100_000

func makeRange(_ *run, a arguments) value {
	a.noNames("range")
	o := &rangeObject{step: 1}
	numbers := make([]int64, len(a.positional))
	for i, v := range a.positional {
		numbers[i] = numberOf(v, "range")
	}
	switch len(numbers) {
	case 1:
		o.stop = numbers[0]
	case 2:
		o.start, o.stop = numbers[0], numbers[1]
	case 3:
		o.start, o.stop, o.step = numbers[0], numbers[1], numbers[2]
	default:
		fail("range needs 1 to 3 numbers, not %d", len(numbers))
	}
	if o.step == 0 {
		fail("range() arg 3 must not be zero")
	}
	if n := o.length(); n > maxRange || n < 0 {
		fail("a range of more than %d numbers", maxRange)
	}
	return o
}

// makeDict is Python's dict.
func makeDict(r *run, name string, a arguments) *dict {
	d := newDict(len(a.names))
	if len(a.positional) > 1 {
		fail("%s expected at most 1 argument, got %d", name, len(a.positional))
	}
	for _, v := range a.positional {
		checkDefined(v)
		if from, ok := v.(*dict); ok {
			for i, key := range from.keys {
				d.set(key, from.values[i])
			}
			continue
		}
		for _, item := range collect(r, v) {
			pair := collect(r, item)
			if len(pair) != 2 {
				fail("%s needs pairs of a key and a value", name)
			}
			d.set(pair[0], pair[1])
		}
	}
	for i, key := range a.names {
		d.set(key, a.named[i])
	}
	return d
}

func makeCycler(_ *run, a arguments) value {
	a.noNames("cycler")
	if len(a.positional) == 0 {
		fail("at least one item has to be provided")
	}
	return &cycler{items: a.positional}
}

func (c *cycler) attribute(name string) (value, bool) {
	switch name {
	case "next":
		return &method{name, func(*run, arguments) value {
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v
		}}, true
	case "reset":
		return &method{name, func(*run, arguments) value { c.at = 0; return nil }}, true
	case "current":
		return c.items[c.at], true
	case "items":
		return &tuple{items: c.items}, true
	case "pos":
		return int64(c.at), true
	}
	return nil, false
}

func makeJoiner(_ *run, a arguments) value {
	return &joiner{separator: or(a.bind("joiner", 0, "sep")[0], literal(", "))}
}

func (j *joiner) attribute(name string) (value, bool) {
	switch name {
	case "sep":
		return j.separator, true
	case "used":
		return j.used, true
	}
	return nil, false
}

// next returns nothing the first time, and the separator later.
func (j *joiner) next() value {
	if !j.used {
		j.used = true
		return literal("")
	}
	return j.separator
}
