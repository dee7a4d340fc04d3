package server

import "strings"

// stopFilter looks for stop strings in a text that comes in pieces.
type stopFilter struct {
	stops []string
	open  string // the longest tail of the text that could still become a stop string
}

// push adds a piece. While no stop string is complete, tail is the number of
// the text's last bytes that could still become one. Once one is complete, tail
// is what to cut: the bytes from the stop string that begins first.
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

// firstMatch is where the first whole stop string in text begins, or -1.
func (f *stopFilter) firstMatch(text string) int {
	first := -1
	for _, stop := range f.stops {
		if at := strings.Index(text, stop); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// firstOpen is where the longest tail of text begins that a stop string begins
// with, or len(text).
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
