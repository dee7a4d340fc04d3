package jinja

import (
	"strings"
	"unicode"
)

// stringMethods returns the methods of str.
func stringMethods() map[string]methodOf {
	m := map[string]methodOf{}
	plain := func(name string, f func(s str) value) {
		m[name] = methodOf{call: func(_ *run, of value, _ []value) value { return f(of.(str)) }}
	}
	for name, f := range map[string]func(str) str{
		"upper": str.upper, "lower": str.lower, "capitalize": str.capitalize, "title": str.titled,
		"swapcase": str.swapcase, "casefold": str.casefold,
	} {
		plain(name, func(s str) value { return f(s) })
	}
	for name, f := range map[string]func(str) bool{
		"isupper": str.isUpper, "islower": str.isLower, "istitle": str.isTitle, "isascii": str.isASCII,
		"isidentifier": func(s str) bool { return s.text != "" && nameLength(s.text) == len(s.text) },
		"isprintable":  func(s str) bool { return s.every(unicode.IsPrint) },
		"isspace":      func(s str) bool { return s.text != "" && s.every(isSpace) },
		"isalpha":      func(s str) bool { return s.text != "" && s.every(unicode.IsLetter) },
		"isdecimal":    func(s str) bool { return s.text != "" && s.every(unicode.IsDigit) },
		"isdigit":      func(s str) bool { return s.text != "" && s.every(isDigit) },
		"isnumeric":    func(s str) bool { return s.text != "" && s.every(isNumeric) },
		"isalnum": func(s str) bool {
			return s.text != "" && s.every(func(r rune) bool { return unicode.IsLetter(r) || isNumeric(r) })
		},
	} {
		plain(name, func(s str) value { return f(s) })
	}
	type ends struct{ left, right bool }
	for name, strip := range map[string]ends{"strip": {true, true}, "lstrip": {true, false}, "rstrip": {false, true}} {
		m[name] = methodOf{params: []string{"chars"}, call: func(_ *run, of value, p []value) value {
			return of.(str).strip(or(p[0], nil), strip.left, strip.right)
		}}
	}
	addSearching(m)
	addSplitting(m)
	addPadding(m)
	m["format"] = methodOf{free: func(r *run, of value, a arguments) value { return r.format(of.(str), a) }}
	m["format_map"] = methodOf{params: []string{"mapping"}, required: 1,
		call: func(r *run, of value, p []value) value {
			a := arguments{}
			a.addDict(p[0])
			return r.format(of.(str), a)
		}}
	for _, name := range []string{"encode", "translate", "maketrans"} {
		m[name] = unsupported(name)
	}
	return m
}

func (s str) every(f func(rune) bool) bool {
	return strings.IndexFunc(s.text, func(r rune) bool { return !f(r) }) < 0
}

// isDigit also knows digits that are no decimals, such as superscripts.
func isDigit(r rune) bool {
	return unicode.IsDigit(r) || r == '²' || r == '³' || r == '¹' || r == '⁰' || r >= '⁴' && r <= '⁹' ||
		r >= '₀' && r <= '₉' || r >= '①' && r <= '⑨'
}

func isNumeric(r rune) bool { return unicode.IsNumber(r) }

// strip removes white space, or the given characters, from the sides.
func (s str) strip(chars value, left, right bool) str {
	drop := isSpace
	if chars != nil {
		set := textOf(chars, "strip").text
		drop = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	from, to := 0, len(s.text)
	if left {
		from = to - len(strings.TrimLeftFunc(s.text, drop))
	}
	if right {
		to = from + len(strings.TrimRightFunc(s.text[from:], drop))
	}
	return s.slice(from, to)
}

// addSearching adds the methods that look for a text.
func addSearching(m map[string]methodOf) {
	params := []string{"sub", "start", "end"}
	search := func(name string, f func(part, sub string) int, fails bool) {
		m[name] = methodOf{params, 1, false, func(_ *run, of value, p []value) value {
			part, from, valid := of.(str).window(p)
			i := -1
			if valid {
				i = f(part.text, textOf(p[0], name).text)
			}
			if i < 0 && fails {
				fail("substring not found")
			}
			if i < 0 {
				return int64(-1)
			}
			return int64(from + part.slice(0, i).length())
		}, nil}
	}
	search("find", strings.Index, false)
	search("rfind", strings.LastIndex, false)
	search("index", strings.Index, true)
	search("rindex", strings.LastIndex, true)
	m["count"] = methodOf{params, 1, false, func(_ *run, of value, p []value) value {
		part, _, valid := of.(str).window(p)
		if !valid {
			return int64(0)
		}
		return int64(strings.Count(part.text, textOf(p[0], "count").text))
	}, nil}
	ends := func(name string, f func(s, end string) bool) {
		m[name] = methodOf{params, 1, false, func(_ *run, of value, p []value) value {
			part, _, valid := of.(str).window(p)
			options := []value{p[0]}
			if t, ok := p[0].(*tuple); ok {
				options = t.items
			}
			for _, o := range options {
				if f(part.text, textOf(o, name).text) && valid {
					return true
				}
			}
			return false
		}, nil}
	}
	ends("startswith", strings.HasPrefix)
	ends("endswith", strings.HasSuffix)
}

// window returns the part of s between the bounds p[1] and p[2], which may be missing, and its
// first character's index. It is not valid if the part begins after the end of s.
func (s str) window(p []value) (part str, from int, valid bool) {
	if isMissing(p[1]) && isMissing(p[2]) {
		return s, 0, true
	}
	n := s.length()
	b := sliceBounds(n, or(p[1], nil), or(p[2], nil), nil)
	return s.stride(b), b.first, clampIndex(or(p[1], nil), 0) <= n
}

// replace replaces at most n texts, or all if n is negative.
func (s str) replace(from, to str, n int64) str {
	var b builder
	if from.text == "" {
		return s.interleave(to, n)
	}
	at := 0
	for ; n != 0; n-- {
		i := strings.Index(s.text[at:], from.text)
		if i < 0 {
			break
		}
		b.add(s.slice(at, at+i))
		b.add(to)
		at += i + len(from.text)
	}
	if at == 0 {
		return s
	}
	b.add(s.from(at))
	return b.markup(s.html)
}

// interleave puts a text in front of each character and at the end, at most n times.
func (s str) interleave(t str, n int64) str {
	var b builder
	for _, c := range s.chars() {
		if n != 0 {
			b.add(t)
			n--
		}
		b.add(c.(str))
	}
	if n != 0 {
		b.add(t)
	}
	return b.markup(s.html)
}
