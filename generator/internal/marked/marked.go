// Package marked has text whose parts know where they come from: from a request, or from the
// checkpoint and its chat template. Only the latter can hold control tokens.
package marked

import "strings"

// Piece is a part of a text.
type Piece struct {
	Text string `json:"text"`
	// Data: the piece comes from a request. What is spelled like a control token in it is
	// text like any other.
	Data bool `json:"data,omitempty"`
}

// Text is a text as the sequence of its pieces. Pieces may be empty, and neighbours may have
// the same mark.
type Text []Piece

// Trusted returns a text without data, or an empty Text for an empty string.
func Trusted(s string) Text { return of(s, false) }

// Data returns a text that is data, or an empty Text for an empty string.
func Data(s string) Text { return of(s, true) }

func of(s string, data bool) Text {
	if s == "" {
		return nil
	}
	return Text{{Text: s, Data: data}}
}

// String returns the text without its marks.
func (t Text) String() string {
	if len(t) == 1 {
		return t[0].Text
	}
	var b strings.Builder
	b.Grow(t.Len())
	for _, p := range t {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Len returns the number of bytes.
func (t Text) Len() int {
	n := 0
	for _, p := range t {
		n += len(p.Text)
	}
	return n
}

// Append returns t followed by s with a mark. Neighbours of one mark become one piece. Like
// append, it may reuse t's memory.
func (t Text) Append(s string, data bool) Text {
	if s == "" {
		return t
	}
	if n := len(t); n > 0 && t[n-1].Data == data {
		t[n-1].Text += s
		return t
	}
	return append(t, Piece{s, data})
}
