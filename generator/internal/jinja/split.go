package jinja

import (
	"strings"
	"unicode/utf8"
)

// addSplitting adds the methods that take strings apart or put them together.
func addSplitting(m map[string]methodOf) {
	for _, name := range []string{"split", "rsplit"} {
		m[name] = methodOf{[]string{"sep", "maxsplit"}, 0, true, func(_ *run, of value, p []value) value {
			most := numberOf(or(p[1], int64(-1)), name)
			if most < 0 || most > maxItems {
				most = maxItems
			}
			return of.(str).split(or(p[0], nil), int(most), name == "rsplit")
		}, nil}
	}
	m["splitlines"] = methodOf{[]string{"keepends"}, 0, true, func(_ *run, of value, p []value) value {
		return &list{of.(str).lines(truth(or(p[0], false)))}
	}, nil}
	for _, name := range []string{"partition", "rpartition"} {
		m[name] = methodOf{[]string{"sep"}, 1, false, func(_ *run, of value, p []value) value {
			return of.(str).partition(textOf(p[0], name), name == "rpartition")
		}, nil}
	}
	m["join"] = methodOf{[]string{"iterable"}, 1, false, func(r *run, of value, p []value) value {
		return of.(str).join(r, p[0])
	}, nil}
	m["replace"] = methodOf{[]string{"old", "new", "count"}, 2, false, func(_ *run, of value, p []value) value {
		s := of.(str)
		s.onlyPlain("replace")
		count := numberOf(or(p[2], int64(-1)), "replace")
		return s.replace(textOf(p[0], "replace"), textOf(p[1], "replace"), count)
	}, nil}
	for _, name := range []string{"removeprefix", "removesuffix"} {
		m[name] = methodOf{[]string{"affix"}, 1, false, func(_ *run, of value, p []value) value {
			return of.(str).removeAffix(textOf(p[0], name).text, name == "removeprefix")
		}, nil}
	}
}

// onlyPlain refuses methods of Markup that would escape their arguments.
func (s str) onlyPlain(method string) {
	if s.html {
		fail("the method %s of Markup is not supported in chat templates", method)
	}
}

func (s str) removeAffix(affix string, front bool) str {
	switch {
	case front && strings.HasPrefix(s.text, affix):
		return s.from(len(affix))
	case !front && strings.HasSuffix(s.text, affix):
		return s.slice(0, len(s.text)-len(affix))
	}
	return s
}

// split splits s at most so many times, from the right if right is true.
func (s str) split(separator value, most int, right bool) *list {
	var parts []value
	if separator == nil {
		parts = s.words(most, right)
	} else {
		by := textOf(separator, "split").text
		if by == "" {
			fail("empty separator")
		}
		parts = s.splitBy(by, most, right)
	}
	checkItems(len(parts))
	return &list{parts}
}

func (s str) splitBy(by string, most int, right bool) (parts []value) {
	if right {
		for len(parts) < most {
			i := strings.LastIndex(s.text, by)
			if i < 0 {
				break
			}
			parts = append(parts, s.from(i+len(by)))
			s = s.slice(0, i)
		}
		return backwards(append(parts, s))
	}
	for len(parts) < most {
		i := strings.Index(s.text, by)
		if i < 0 {
			break
		}
		parts = append(parts, s.slice(0, i))
		s = s.from(i + len(by))
	}
	return append(parts, s)
}

// words splits s at white space.
func (s str) words(most int, right bool) (parts []value) {
	if right {
		for s = s.strip(nil, false, true); s.text != "" && len(parts) < most; s = s.strip(nil, false, true) {
			i := strings.LastIndexFunc(s.text, isSpace)
			if i >= 0 {
				_, n := utf8.DecodeRuneInString(s.text[i:])
				i += n
			}
			parts = append(parts, s.from(max(i, 0)))
			s = s.slice(0, max(i, 0))
		}
		if s.text != "" {
			parts = append(parts, s)
		}
		return backwards(parts)
	}
	for s = s.strip(nil, true, false); s.text != "" && len(parts) < most; s = s.strip(nil, true, false) {
		i := strings.IndexFunc(s.text, isSpace)
		if i < 0 {
			i = len(s.text)
		}
		parts = append(parts, s.slice(0, i))
		s = s.from(i)
	}
	if s.text != "" {
		parts = append(parts, s)
	}
	return parts
}

func backwards(parts []value) []value {
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return parts
}

// lines is Python's str.splitlines.
func (s str) lines(keepEnds bool) (lines []value) {
	for s.text != "" {
		end := strings.IndexAny(s.text, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		if end < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s.text[end:])
		if strings.HasPrefix(s.text[end:], "\r\n") {
			n = 2
		}
		if keepEnds {
			lines = append(lines, s.slice(0, end+n))
		} else {
			lines = append(lines, s.slice(0, end))
		}
		s = s.from(end + n)
	}
	checkItems(len(lines))
	return lines
}

func (s str) partition(by str, right bool) *tuple {
	if by.text == "" {
		fail("empty separator")
	}
	empty := str{html: s.html}
	i := strings.Index(s.text, by.text)
	if right {
		i = strings.LastIndex(s.text, by.text)
	}
	switch {
	case i >= 0:
		return &tuple{items: []value{s.slice(0, i), by, s.from(i + len(by.text))}}
	case right:
		return &tuple{items: []value{empty, empty, s}}
	}
	return &tuple{items: []value{s, empty, empty}}
}

// join is Python's str.join.
func (s str) join(r *run, items value) str {
	s.onlyPlain("join")
	var b builder
	next, first := iterate(r, items), true
	for item, ok := next(); ok; item, ok = next() {
		if !first {
			b.add(s)
		}
		first = false
		part, isText := item.(str)
		if !isText {
			fail("join: a string is expected, %s found", typeName(item))
		}
		b.add(part)
	}
	return b.str()
}

// addPadding adds the methods that fill a string up.
func addPadding(m map[string]methodOf) {
	for name, align := range map[string]byte{"center": '^', "ljust": '<', "rjust": '>'} {
		m[name] = methodOf{[]string{"width", "fillchar"}, 1, false, func(_ *run, of value, p []value) value {
			fill := textOf(or(p[1], literal(" ")), name)
			if fill.length() != 1 {
				fail("the fill character must be exactly one character long")
			}
			return of.(str).pad(boundOf(p[0], name), align, fill, true)
		}, nil}
	}
	m["zfill"] = methodOf{[]string{"width"}, 1, false, func(_ *run, of value, p []value) value {
		s, sign := of.(str), str{}
		missing := boundOf(p[0], "zfill") - s.length()
		if missing <= 0 {
			return s
		}
		if signOf(s.text) != "" {
			sign, s = s.slice(0, 1), s.from(1)
		}
		return sign.plus(literal("0").times(int64(missing))).plus(s)
	}, nil}
	m["expandtabs"] = methodOf{[]string{"tabsize"}, 0, true, func(_ *run, of value, p []value) value {
		return of.(str).expandTabs(boundOf(or(p[0], int64(8)), "expandtabs"))
	}, nil}
}

// pad fills s up to a width. method chooses the side of the odd character in the middle as
// Python's methods do; formatting does it the other way.
func (s str) pad(width int, align byte, fill str, method bool) str {
	missing := width - s.length()
	if missing <= 0 {
		return s
	}
	left := 0
	switch align {
	case '>':
		left = missing
	case '^':
		left = missing / 2
		if method && missing%2 == 1 && width%2 == 1 {
			left++
		}
	}
	var b builder
	b.add(fill.times(int64(left)))
	b.add(s)
	b.add(fill.times(int64(missing - left)))
	return b.markup(s.html)
}

func (s str) expandTabs(size int) str {
	var b builder
	column := 0
	for _, c := range s.chars() {
		c := c.(str)
		switch c.text {
		case "\t":
			if size > 0 {
				n := size - column%size
				b.add(str{text: strings.Repeat(" ", n), data: c.data})
				column += n
			}
		case "\n", "\r":
			column = 0
			b.add(c)
		default:
			column++
			b.add(c)
		}
	}
	return b.markup(s.html)
}
