package jinja

import (
	"sort"
	"strings"
	"unicode/utf8"

	"reel.internal/reel/generator/internal/marked"
)

// maxText is the largest text, in bytes, that a template may make on its way to the output.
const maxText = 16 << 20

// str is Python's str. Each of its characters is data, which comes from the request, or is
// trusted.
type str struct {
	text string
	data bool  // the mark of the first character
	cuts []int // byte offsets at which the mark changes, ascending, between 0 and len(text)
	html bool  // whether it is a markupsafe.Markup
}

// literal returns a trusted string.
func literal(s string) str { return str{text: s} }

// fromMarked returns the string of a text.
func fromMarked(t marked.Text) str {
	var b builder
	for _, p := range t {
		b.put(p.Text, p.Data)
	}
	return b.str()
}

// marked returns the string as a text.
func (s str) marked() (t marked.Text) {
	s.runs(func(text string, data bool) { t = t.Append(text, data) })
	return t
}

// runs calls f for each longest part of one mark.
func (s str) runs(f func(text string, data bool)) {
	at, data := 0, s.data
	for _, cut := range s.cuts {
		f(s.text[at:cut], data)
		at, data = cut, !data
	}
	if at < len(s.text) {
		f(s.text[at:], data)
	}
}

// hasData reports whether a character is data.
func (s str) hasData() bool { return s.text != "" && (s.data || len(s.cuts) > 0) }

// slice returns the part between two byte offsets.
func (s str) slice(from, to int) str {
	part := str{text: s.text[from:to], data: s.data, html: s.html}
	if len(s.cuts) == 0 || from == to {
		return part
	}
	first := sort.SearchInts(s.cuts, from+1) // the cuts before it are at most from
	last := sort.SearchInts(s.cuts, to)      // that cut and those after it are at least to
	part.data = s.data != (first%2 == 1)
	for _, cut := range s.cuts[first:max(first, last)] {
		part.cuts = append(part.cuts, cut-from)
	}
	return part
}

// from returns the part from a byte offset on.
func (s str) from(i int) str { return s.slice(i, len(s.text)) }

// as returns a text that was made from s and cannot be traced to its characters: it is data if
// any character of s is.
func (s str) as(text string) str { return str{text: text, data: s.hasData(), html: s.html} }

// mapped returns s with each character replaced by a text.
func (s str) mapped(f func(r rune) string) str {
	var b builder
	s.runs(func(text string, data bool) {
		for _, r := range text {
			b.put(f(r), data)
		}
	})
	return b.markup(s.html)
}

// length returns the number of characters.
func (s str) length() int { return utf8.RuneCountInString(s.text) }

// isASCII reports whether each character takes one byte.
func (s str) isASCII() bool {
	for i := range len(s.text) {
		if s.text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// offset returns the byte offset of the character at an index from 0 to the length.
func (s str) offset(index int) int {
	if index <= 0 || s.isASCII() {
		return min(max(index, 0), len(s.text))
	}
	for i := range s.text {
		if index == 0 {
			return i
		}
		index--
	}
	return len(s.text)
}

// chars returns the characters.
func (s str) chars() []value {
	all := make([]value, 0, len(s.text))
	for at := 0; at < len(s.text); {
		_, n := utf8.DecodeRuneInString(s.text[at:])
		c := s.slice(at, at+n)
		c.html = false
		all = append(all, c)
		at += n
	}
	return all
}

// plus returns the concatenation.
func (s str) plus(t str) str {
	if s.html != t.html {
		s, t = escaped(s), escaped(t)
	}
	if s.text == "" || t.text == "" {
		if s.text == "" {
			s, t = t, s
		}
		return s
	}
	b := builder{text: make([]byte, 0, len(s.text)+len(t.text))}
	b.add(s)
	b.add(t)
	return b.markup(s.html)
}

// times returns n copies.
func (s str) times(n int64) str {
	if n <= 0 || s.text == "" {
		return str{html: s.html}
	}
	if n > maxText || int64(len(s.text))*n > maxText {
		fail("a text of more than %d bytes", maxText)
	}
	if len(s.cuts) == 0 {
		s.text = strings.Repeat(s.text, int(n))
		return s
	}
	var b builder
	for range n {
		b.add(s)
	}
	return b.markup(s.html)
}

// builder collects a string.
type builder struct {
	text  []byte
	first bool // the mark of the first character
	last  bool // the mark of the last character
	cuts  []int
	most  int // bytes of the text; 0: maxText
}

// put appends a text with one mark.
func (b *builder) put(text string, data bool) {
	if text == "" {
		return
	}
	b.check(len(text))
	switch {
	case len(b.text) == 0:
		b.first = data
	case data != b.last:
		b.cuts = append(b.cuts, len(b.text))
	}
	b.last = data
	b.text = append(b.text, text...)
}

// check fails if n more bytes exceed the bound.
func (b *builder) check(n int) {
	if b.most > 0 && len(b.text)+n > b.most {
		panic(&Error{Text: ErrTooLong.Error(), Kind: ErrTooLong})
	}
	if len(b.text)+n > maxText {
		fail("a text of more than %d bytes", maxText)
	}
}

// trusted appends a trusted text.
func (b *builder) trusted(text string) { b.put(text, false) }

// add appends a string.
func (b *builder) add(s str) {
	if len(s.cuts) == 0 {
		b.put(s.text, s.data)
		return
	}
	s.runs(b.put)
}

// str returns the string. The builder must not be used any more.
func (b *builder) str() str {
	return str{text: string(b.text), data: b.first, cuts: b.cuts}
}

// markup is str for a string that is a Markup if html is true.
func (b *builder) markup(html bool) str {
	s := b.str()
	s.html = html
	return s
}
