package jinja

import (
	"html"
	"regexp"
	"strings"
)

// addTextFilters adds the filters whose value is a text.
func addTextFilters(m map[string]*builtin) {
	for name, f := range map[string]func(str) str{
		"capitalize": str.capitalize, "lower": str.lower, "title": str.titleWords, "upper": str.upper,
		"striptags": stripTags, "string": func(s str) str { return s },
		"safe": func(s str) str { s.html = true; return s },
	} {
		m[name] = &builtin{call: func(r *run, v value, _ []value) value { return f(r.soft(v)) }}
	}
	escape := &builtin{call: func(r *run, v value, _ []value) value { return escaped(r.soft(v)) }}
	m["e"], m["escape"] = escape, escape
	m["forceescape"] = &builtin{call: func(r *run, v value, _ []value) value { return escaped(r.text(v)) }}
	m["center"] = &builtin{params: []string{"width"}, call: func(r *run, v value, p []value) value {
		return r.soft(v).pad(boundOf(or(p[0], int64(80)), "center"), '^', literal(" "), true)
	}}
	m["format"] = &builtin{free: formatFilter}
	m["indent"] = &builtin{params: []string{"width", "first", "blank"}, call: indentFilter}
	m["join"] = &builtin{params: []string{"d", "attribute"}, call: joinFilter}
	m["replace"] = &builtin{params: []string{"old", "new", "count"}, required: 2, call: replaceFilter}
	m["trim"] = &builtin{params: []string{"chars"}, call: func(r *run, v value, p []value) value {
		return r.soft(v).strip(or(p[0], nil), true, true)
	}}
	m["truncate"] = &builtin{params: []string{"length", "killwords", "end", "leeway"}, call: truncateFilter}
	m["urlencode"] = &builtin{call: urlEncode}
	m["wordwrap"] = &builtin{
		params: []string{"width", "break_long_words", "wrapstring", "break_on_hyphens"}, call: wordWrap,
	}
	m["wordcount"] = &builtin{call: func(r *run, v value, _ []value) value {
		return int64(len(wordPattern.FindAllStringIndex(r.text(v).text, -1)))
	}}
}

// wordPattern matches Python's \w+.
var wordPattern = regexp.MustCompile(`[\pL\pN_]+`)

// soft is Jinja2's soft_str: text, which leaves a Markup as it is.
func (r *run) soft(v value) str {
	if s, ok := v.(str); ok {
		return s
	}
	return r.text(v)
}

// escaped returns a Markup, in which the characters of a text that is none are escaped.
func escaped(s str) str {
	if s.html {
		return s
	}
	s = s.mapped(func(r rune) string {
		switch r {
		case '&':
			return "&amp;"
		case '<':
			return "&lt;"
		case '>':
			return "&gt;"
		case '\'':
			return "&#39;"
		case '"':
			return "&#34;"
		}
		return string(r)
	})
	s.html = true
	return s
}

// stripTags is Markup.striptags.
func stripTags(s str) str {
	s.html = false
	s = s.without("<!--", "-->").without("<", ">")
	var b builder
	for i, word := range s.words(maxItems, false) {
		if i > 0 {
			b.trusted(" ")
		}
		b.add(word.(str))
	}
	return b.str().unescaped()
}

// without removes the parts from one text to another.
func (s str) without(open, end string) str {
	var b builder
	for {
		from := strings.Index(s.text, open)
		if from < 0 {
			break
		}
		n := strings.Index(s.text[from:], end)
		if n < 0 {
			break
		}
		b.add(s.slice(0, from))
		s = s.from(from + n + len(end))
	}
	b.add(s)
	return b.str()
}

var entityPattern = regexp.MustCompile(`&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[a-zA-Z0-9]+);?`)

// unescaped replaces HTML's entities. The text of one is data if a character of it is.
func (s str) unescaped() str {
	var b builder
	at := 0
	for _, place := range entityPattern.FindAllStringIndex(s.text, -1) {
		entity := s.slice(place[0], place[1])
		b.add(s.slice(at, place[0]))
		b.add(entity.as(html.UnescapeString(entity.text)))
		at = place[1]
	}
	b.add(s.from(at))
	return b.str()
}

func formatFilter(r *run, v value, a arguments) value {
	if len(a.positional) > 0 && len(a.names) > 0 {
		fail("can't handle positional and keyword arguments at the same time")
	}
	if len(a.names) > 0 {
		return percent(r, r.soft(v), a.dict())
	}
	return percent(r, r.soft(v), &tuple{items: a.positional})
}

func indentFilter(_ *run, v value, p []value) value {
	s := textOf(v, "indent").plus(literal("\n"))
	width, isText := or(p[0], int64(4)).(str)
	if !isText {
		width = literal(" ").times(numberOf(or(p[0], int64(4)), "indent"))
	}
	first, blank := truth(or(p[1], false)), truth(or(p[2], false))
	var b builder
	for i, line := range s.lines(false) {
		line := line.(str)
		if i > 0 {
			b.trusted("\n")
		}
		if i == 0 && first || i > 0 && (blank || line.text != "") {
			b.add(width)
		}
		b.add(line)
	}
	return b.markup(s.html)
}

func joinFilter(r *run, v value, p []value) value {
	next, get := iterate(r, v), func(v value) value { return v }
	if attribute := or(p[1], nil); attribute != nil {
		get = attributeGetter(attribute, nil)
	}
	separator, first := r.text(or(p[0], literal(""))), true
	var b builder
	for item, ok := next(); ok; item, ok = next() {
		if !first {
			b.add(separator)
		}
		first = false
		b.add(r.text(get(item)))
	}
	return b.str()
}

func replaceFilter(r *run, v value, p []value) value {
	count := int64(-1)
	if c := or(p[2], nil); c != nil {
		count = numberOf(c, "replace")
	}
	return r.text(v).replace(r.text(p[0]), r.text(p[1]), count)
}

func truncateFilter(r *run, v value, p []value) value {
	most, end := numberOf(or(p[0], int64(255)), "truncate"), textOf(or(p[2], literal("...")), "truncate")
	leeway := int64(5)
	if l := or(p[3], nil); l != nil {
		leeway = numberOf(l, "truncate")
	}
	keep := most - int64(end.length())
	if keep < 0 || leeway < 0 {
		fail("truncate needs a length of at least %d, and a leeway of at least 0", end.length())
	}
	if n, ok := length(v); ok && int64(n) <= most+leeway {
		return v
	}
	s := textOf(v, "truncate")
	part := s.slice(0, s.offset(int(min(keep, maxText))))
	if !truth(or(p[1], false)) {
		part = part.splitBy(" ", 1, true)[0].(str)
	}
	return part.plus(end)
}

func urlEncode(r *run, v value, _ []value) value {
	_, isText := v.(str)
	next, iterable := tryIterate(v)
	if isText || !iterable {
		return quoted(r.text(v), false)
	}
	if d, ok := v.(*dict); ok {
		next = pullOf((&view{d, "items"}).items())
	}
	var b builder
	first := true
	for item, ok := next(); ok; item, ok = next() {
		pair := collect(r, item)
		if len(pair) != 2 {
			fail("urlencode needs pairs")
		}
		if !first {
			b.trusted("&")
		}
		first = false
		b.add(quoted(r.text(pair[0]), true))
		b.trusted("=")
		b.add(quoted(r.text(pair[1]), true))
	}
	return b.str()
}

// quoted escapes a text for a URL, or for the part of one after a question mark.
func quoted(s str, query bool) str {
	return s.mapped(func(r rune) string {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("_.-~", r):
			return string(r)
		case r == '/' && !query:
			return "/"
		case r == ' ' && query:
			return "+"
		}
		var b strings.Builder
		for _, c := range []byte(string(r)) {
			const digits = "0123456789ABCDEF"
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
		return b.String()
	})
}
