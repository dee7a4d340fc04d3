package jinja

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf16"
)

// jsonWriter writes values as Python's json.dumps does. Strings keep their marks, the rest is
// trusted.
type jsonWriter struct {
	out          builder
	ascii        bool
	lines        bool // each item on a line of its own
	indent       str  // of a level, with lines
	comma, colon str
	sortKeys     bool
}

// toJSON is the filter tojson of transformers.
func toJSON(_ *run, v value, p []value) value {
	w := jsonWriter{comma: literal(", "), colon: literal(": ")}
	w.ascii = truth(or(p[0], false))
	if indent := or(p[1], nil); indent != nil {
		w.lines, w.comma = true, literal(",")
		if s, ok := indent.(str); ok {
			w.indent = s
		} else {
			w.indent = literal(" ").times(numberOf(indent, "indent"))
		}
	}
	if separators := or(p[2], nil); separators != nil {
		pair := collect(nil, separators)
		if len(pair) != 2 {
			fail("tojson needs two separators")
		}
		w.comma, w.colon = textOf(pair[0], "tojson"), textOf(pair[1], "tojson")
	}
	w.sortKeys = truth(or(p[3], false))
	w.value(v, literal("\n"), 0)
	return w.out.str()
}

// value writes v. newline is the newline and indentation of the list or dict that holds v.
func (w *jsonWriter) value(v value, newline str, depth int) {
	checkDepth(depth)
	switch v := v.(type) {
	case str:
		w.string(v)
	case nil, bool, int64, float64:
		w.out.trusted(jsonAtom(v))
	case *list:
		w.list(v.items, newline, depth)
	case *tuple:
		w.list(v.items, newline, depth)
	case *dict:
		w.dict(v, newline, depth)
	default:
		fail("object of type %s is not JSON serializable", typeName(v))
	}
}

func jsonAtom(v value) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(v)
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 1):
			return "Infinity"
		case math.IsInf(v, -1):
			return "-Infinity"
		}
	}
	return atomText(v)
}

// items writes n items between brackets. item writes one.
func (w *jsonWriter) items(open, end string, n int, newline str, item func(i int, newline str)) {
	w.out.trusted(open)
	inner := newline
	if w.lines {
		inner = newline.plus(w.indent)
	}
	for i := range n {
		if i > 0 {
			w.out.add(w.comma)
		}
		if w.lines {
			w.out.add(inner)
		}
		item(i, inner)
	}
	if w.lines && n > 0 {
		w.out.add(newline)
	}
	w.out.trusted(end)
}

func (w *jsonWriter) list(items []value, newline str, depth int) {
	w.items("[", "]", len(items), newline, func(i int, newline str) { w.value(items[i], newline, depth+1) })
}

func (w *jsonWriter) dict(d *dict, newline str, depth int) {
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	if w.sortKeys {
		slices.SortStableFunc(order, func(a, b int) int {
			c := orderOf(d.keys[a], d.keys[b])
			return c
		})
	}
	w.items("{", "}", len(order), newline, func(i int, newline str) {
		w.string(jsonKey(d.keys[order[i]]))
		w.out.add(w.colon)
		w.value(d.values[order[i]], newline, depth+1)
	})
}

func jsonKey(v value) str {
	switch v := v.(type) {
	case str:
		return v
	case nil, bool, int64, float64:
		return literal(jsonAtom(v))
	}
	fail("keys must be str, int, float, bool or None, not %s", typeName(v))
	return str{}
}

func (w *jsonWriter) string(s str) {
	w.out.trusted(`"`)
	s.runs(func(text string, data bool) {
		for _, r := range text {
			w.out.put(w.rune(r), data)
		}
	})
	w.out.trusted(`"`)
}

func (w *jsonWriter) rune(r rune) string {
	at := strings.IndexRune("\"\\\n\r\t\b\f", r)
	switch {
	case at >= 0:
		return `\` + `"\nrtbf`[at:at+1]
	case r < ' ' || w.ascii && r > 0x7e && r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	case w.ascii && r >= 0x10000:
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return string(r)
}
