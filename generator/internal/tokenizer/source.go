package tokenizer

import (
	"sort"
	"strings"

	"reel.internal/reel/generator/internal/marked"
)

// source is a text that knows which of its bytes are data.
type source struct {
	text string
	// borders are the offsets at which trusted text and data alternate, in order.
	// The text before the first one is trusted. nil: there is no data.
	borders []int
}

func newSource(t marked.Text) source {
	s := source{text: t.String()}
	at, data := 0, false
	for _, piece := range t {
		if piece.Data != data && piece.Text != "" {
			s.borders = append(s.borders, at)
			data = piece.Data
		}
		at += len(piece.Text)
	}
	return s
}

// data reports whether any byte from offset from up to to is data.
func (s source) data(from, to int) bool {
	if s.borders == nil {
		return false
	}
	next := sort.SearchInts(s.borders, from+1)
	return next%2 == 1 || next < len(s.borders) && s.borders[next] < to
}

// slice returns the bytes from offset from up to to.
func (s source) slice(from, to int) source {
	part := source{text: s.text[from:to]}
	if s.borders == nil {
		return part
	}
	next := sort.SearchInts(s.borders, from+1)
	if next%2 == 1 {
		part.borders = append(part.borders, 0)
	}
	for ; next < len(s.borders) && s.borders[next] < to; next++ {
		part.borders = append(part.borders, s.borders[next]-from)
	}
	return part
}

// sourceBuilder builds a source from left to right.
type sourceBuilder struct {
	strings.Builder
	borders []int
	isData  bool // the bytes written next are data
}

// mark sets whether the bytes written next are data.
func (b *sourceBuilder) mark(data bool) {
	if data != b.isData {
		b.borders = append(b.borders, b.Len())
		b.isData = data
	}
}

// add appends the bytes of s from offset from up to to, with their marks.
func (b *sourceBuilder) add(s source, from, to int) {
	if s.borders == nil && !b.isData {
		b.WriteString(s.text[from:to])
		return
	}
	b.addMarked(s.slice(from, to))
}

func (b *sourceBuilder) addMarked(s source) {
	from, data := 0, false
	for _, border := range s.borders {
		b.mark(data)
		b.WriteString(s.text[from:border])
		from, data = border, !data
	}
	b.mark(data)
	b.WriteString(s.text[from:])
}

func (b *sourceBuilder) source() source { return source{b.String(), b.borders} }
