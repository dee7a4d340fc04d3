package server

import "strings"

// stopFilter looks for stop strings in a text that arrives in pieces.
type stopFilter struct {
	stops []string
	open  string // the longest tail of the text that may still become a stop string
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
	if at := f.firstMatch(text); at >= 0 {
		return len(text) - at, true
	}
	f.open = text[f.firstOpen(text):]
	return len(f.open), false
}

// firstMatch returns the offset of the first whole stop string in text, or -1.
func (f *stopFilter) firstMatch(text string) int {
	first := -1
	for _, stop := range f.stops {
		if at := strings.Index(text, stop); at >= 0 && (first < 0 || at < first) {
			first = at
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
