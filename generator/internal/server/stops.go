package server

import "strings"

// stopFilter lets a completion's text through up to the first stop string. It
// holds back what may be the beginning of one, also across tokens, so that no
// part of a stop string is shown. Where several match, the one that begins
// first counts, whatever the borders of the tokens.
type stopFilter struct {
	stops []string
	held  string
}

// push adds the next text and returns what is decided. stopped means that a
// stop string was found: text ends before it, and nothing follows.
func (f *stopFilter) push(text string) (shown string, stopped bool) {
	if len(f.stops) == 0 {
		return text, false
	}
	all := f.held + text
	match, open := f.firstMatch(all), f.firstOpen(all)
	if match >= 0 && match <= open {
		f.held = ""
		return all[:match], true
	}
	f.held = all[open:]
	return all[:open], false
}

// flush ends the text: a beginning that did not become a stop string is shown.
func (f *stopFilter) flush() (shown string, stopped bool) {
	all := f.held
	f.held = ""
	if match := f.firstMatch(all); match >= 0 {
		return all[:match], true
	}
	return all, false
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

// firstOpen is where the first beginning of a stop string that text ends in
// stands, or len(text).
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
