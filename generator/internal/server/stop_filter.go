package server

import "strings"

// stopFilter looks for stop strings in a text that arrives in pieces.
type stopFilter struct {
	stops []string
	open  string // the longest tail of the text that may still become a stop string
	found string // the stop string that is complete, of those that begin first the first of stops
}

// push adds a piece. Until a stop string is complete, tail is the length in bytes of the
// undecided end of the text, which may still become a stop string. After one is complete,
// tail is the number of bytes to cut: everything from the start of the stop string that
// begins first.
func (f *stopFilter) push(piece string) (tail int, stopped bool) {
	if len(f.stops) == 0 {
		return 0, false
	}
	text := f.open + piece
	if at := f.match(text); at >= 0 {
		return len(text) - at, true
	}
	f.open = text[f.firstOpen(text):]
	return len(f.open), false
}

// match finds the whole stop string that begins first in text. It returns its offset, or -1.
func (f *stopFilter) match(text string) int {
	first := -1
	for _, stop := range f.stops {
		if at := strings.Index(text, stop); at >= 0 && (first < 0 || at < first) {
			first, f.found = at, stop
		}
	}
	return first
}

// firstOpen returns the offset of the longest tail of text that is a prefix of a stop
// string, or len(text).
func (f *stopFilter) firstOpen(text string) int {
	first := len(text)
	for _, stop := range f.stops {
		for at := max(0, len(text)-len(stop)+1); at < first; at++ {
			if strings.HasPrefix(stop, text[at:]) {
				first = at
			}
		}
	}
	return first
}
