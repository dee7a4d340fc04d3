package jinja

import (
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// The chunks of a text that Python's module textwrap keeps together: with words cut at hyphens,
// and without.
var (
	hyphenChunks = regexp2.MustCompile(`[\t\n\v\f\r ]+|(?<=[\w!"'&.,?])-{2,}(?=\w)|[^\t\n\v\f\r ]+?`+
		`(?:-(?:(?<=[^\d\W]{2}-)|(?<=[^\d\W]-[^\d\W]-))(?=[^\d\W]-?[^\d\W])|(?=[\t\n\v\f\r ]|\z)|`+
		`(?<=[\w!"'&.,?])(?=-{2,}\w))`, regexp2.None)
	spaceChunks = regexp2.MustCompile(`[\t\n\v\f\r ]+`, regexp2.None)
)

// wrapper is Python's textwrap.TextWrapper, as Jinja2's filter wordwrap sets it up.
type wrapper struct {
	width     int
	breakLong bool
	hyphens   bool
	chunks    []str // those to come
	lines     []str
}

func wordWrap(r *run, v value, p []value) value {
	s := textOf(v, "wordwrap")
	w := wrapper{
		width: boundOf(or(p[0], int64(79)), "wordwrap"), breakLong: truth(or(p[1], true)),
		hyphens: truth(or(p[3], true)),
	}
	separator := literal("\n")
	if t := or(p[2], nil); t != nil {
		separator = textOf(t, "wordwrap")
	}
	if w.width <= 0 {
		fail("invalid width %d (must be > 0)", w.width)
	}
	var b builder
	for i, line := range s.lines(false) {
		if i > 0 {
			b.add(separator)
		}
		for j, wrapped := range w.wrap(line.(str)) {
			if j > 0 {
				b.add(separator)
			}
			b.add(wrapped)
		}
	}
	return b.str()
}

// wrap returns the lines of a paragraph.
func (w *wrapper) wrap(s str) []str {
	w.chunks, w.lines = w.split(s), nil
	for len(w.chunks) > 0 {
		w.line()
	}
	return w.lines
}

// split returns the chunks of s.
func (w *wrapper) split(s str) (chunks []str) {
	pattern := spaceChunks
	if w.hyphens {
		pattern = hyphenChunks
	}
	add := func(chunk str) {
		if chunk.text != "" {
			chunks = append(chunks, chunk)
		}
	}
	at := 0 // in characters, as regexp2 counts
	for m, err := pattern.FindStringMatch(s.text); m != nil && err == nil; m, err = pattern.FindNextMatch(m) {
		gap := s.offset(m.Index - at)
		add(s.slice(0, gap))
		s = s.from(gap)
		end := s.offset(m.Length)
		add(s.slice(0, end))
		s = s.from(end)
		at = m.Index + m.Length
	}
	add(s)
	return chunks
}

// line moves chunks to a new line.
func (w *wrapper) line() {
	if len(w.lines) > 0 && isBlank(w.chunks[0]) {
		w.chunks = w.chunks[1:]
	}
	var line []str
	length := 0
	for len(w.chunks) > 0 && length+w.chunks[0].length() <= w.width {
		length += w.chunks[0].length()
		line, w.chunks = append(line, w.chunks[0]), w.chunks[1:]
	}
	if len(w.chunks) > 0 && w.chunks[0].length() > w.width {
		line = w.long(line, length)
	}
	if n := len(line); n > 0 && isBlank(line[n-1]) {
		line = line[:n-1]
	}
	if len(line) > 0 {
		var b builder
		for _, chunk := range line {
			b.add(chunk)
		}
		w.lines = append(w.lines, b.str())
	}
}

func isBlank(s str) bool { return strings.TrimFunc(s.text, isSpace) == "" }

// long moves a part of a chunk that is longer than a line, or all of it.
func (w *wrapper) long(line []str, length int) []str {
	chunk := w.chunks[0]
	left := w.width - length
	if !w.breakLong {
		if len(line) > 0 {
			return line
		}
		w.chunks = w.chunks[1:]
		return append(line, chunk)
	}
	if w.hyphens && chunk.length() > left {
		before := chunk.slice(0, chunk.offset(left)).text
		if i := strings.LastIndexByte(before, '-'); i > 0 && strings.Trim(before[:i], "-") != "" {
			left = utf8.RuneCountInString(before[:i]) + 1
		}
	}
	at := chunk.offset(left)
	w.chunks[0] = chunk.from(at)
	return append(line, chunk.slice(0, at))
}
