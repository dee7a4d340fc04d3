package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// text is Python's str(v).
func (r *run) text(v value) str {
	switch v := v.(type) {
	case str:
		v.html = false
		return v
	case *undefined:
		return str{}
	case nil, bool, int64, float64:
		return literal(atomText(v))
	}
	var b builder
	b.repr(v, 0)
	return b.str()
}

// atomText returns the text of a None, a bool or a number.
func atomText(v value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return floatText(v.(float64))
}

// floatText is Python's repr of a float: the shortest digits, with an exponent if it is below
// -4 or at least 16.
func floatText(f float64) string {
	switch size := math.Abs(f); {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f != 0 && (size < 1e-4 || size >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// reprText is Python's repr(v), without marks.
func reprText(v value) string { return repr(v).text }

// repr is Python's repr(v).
func repr(v value) str {
	var b builder
	b.repr(v, 0)
	return b.str()
}

// reprShort is the beginning of repr, for errors.
func reprShort(v value) string { return fmt.Sprintf("%.100s", reprText(v)) }

// repr appends Python's repr(v). The characters of strings keep their marks.
func (b *builder) repr(v value, depth int) {
	checkDepth(depth)
	switch v := v.(type) {
	case nil, bool, int64, float64:
		b.trusted(atomText(v))
	case str:
		b.reprString(v)
	case *list:
		b.reprItems("[", v.items, "]", depth)
	case *tuple:
		if len(v.items) == 1 {
			b.reprItems("(", v.items, ",)", depth)
		} else {
			b.reprItems("(", v.items, ")", depth)
		}
	case *dict:
		b.reprDict(v, depth)
	case *view:
		b.trusted("dict_" + v.kind + "(")
		b.reprItems("[", v.items(), "]", depth)
		b.trusted(")")
	case *rangeObject:
		b.trusted(fmt.Sprintf("range(%d, %d", v.start, v.stop))
		if v.step != 1 {
			b.trusted(fmt.Sprintf(", %d", v.step))
		}
		b.trusted(")")
	case *undefined:
		b.trusted("Undefined")
	case *namespace:
		b.trusted("<Namespace ")
		b.reprDict(v.dict, depth)
		b.trusted(">")
	case *macro:
		b.reprMacro(v)
	case *templateReference:
		b.trusted("<TemplateReference None>")
	case *loop:
		b.trusted(fmt.Sprintf("<LoopContext %d/%d>", v.index0+1, v.length()))
	default:
		// In Python it has an address in memory.
		fail("a %s has no text; the filter list makes one of an iterator", typeName(v))
	}
}

func (b *builder) reprMacro(m *macro) {
	if m.name == "" {
		b.trusted("<Macro anonymous>")
		return
	}
	b.trusted("<Macro ")
	b.reprString(literal(m.name))
	b.trusted(">")
}

func (b *builder) reprItems(open string, items []value, end string, depth int) {
	b.trusted(open)
	for i, item := range items {
		if i > 0 {
			b.trusted(", ")
		}
		b.repr(item, depth+1)
	}
	b.trusted(end)
}

func (b *builder) reprDict(d *dict, depth int) {
	b.trusted("{")
	for i, key := range d.keys {
		if i > 0 {
			b.trusted(", ")
		}
		b.repr(key, depth+1)
		b.trusted(": ")
		b.repr(d.values[i], depth+1)
	}
	b.trusted("}")
}

func (b *builder) reprString(s str) {
	quote := "'"
	if strings.Contains(s.text, "'") && !strings.Contains(s.text, `"`) {
		quote = `"`
	}
	if s.html {
		b.trusted("Markup(")
	}
	b.trusted(quote)
	s.runs(func(text string, data bool) {
		for _, r := range text {
			b.put(reprRune(r, quote), data)
		}
	})
	b.trusted(quote)
	if s.html {
		b.trusted(")")
	}
}

func reprRune(r rune, quote string) string {
	switch {
	case string(r) == quote || r == '\\':
		return `\` + string(r)
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case unicode.IsPrint(r):
		return string(r)
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// isSpace is Python's str.isspace of a character.
func isSpace(r rune) bool {
	return r >= 0x1c && r <= 0x1f || unicode.IsSpace(r)
}
