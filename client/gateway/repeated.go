package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// repeatedName reports whether an object in a valid JSON text has a name twice, and where, as in messages[1].content.
// Go's decoder would merge the values; other programs take the first one, or the last.
func repeatedName(text []byte) (where string, is bool) {
	var s nameScanner
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			end := i + 1
			for ; text[end] != '"'; end++ {
				if text[end] == '\\' {
					end++
				}
			}
			s.text(text[i : end+1])
			i = end
		case '{', '[':
			s.open = append(s.open, level{object: text[i] == '{', names: len(s.names)})
			s.nameNext = text[i] == '{'
		case ',':
			s.next()
		case '}':
			if name := s.twice(); name != nil {
				return s.place(name), true
			}
			s.close()
		case ']':
			s.close()
		}
	}
	return "", false
}

// nameScanner holds the names of the objects that a JSON text has begun.
type nameScanner struct {
	open     []level  // from the outside in
	names    [][]byte // quoted
	nameNext bool     // the next text is a name
}

// level is an object or list that has begun.
type level struct {
	object bool
	names  int // where its names begin
	index  int // of a list's present element
}

// text takes a text with its quotes.
func (s *nameScanner) text(quoted []byte) {
	if s.nameNext {
		s.names, s.nameNext = append(s.names, quoted), false
	}
}

// next goes on behind a comma.
func (s *nameScanner) next() {
	l := &s.open[len(s.open)-1]
	l.index++
	s.nameNext = l.object
}

// close ends the innermost object or list.
func (s *nameScanner) close() {
	last := len(s.open) - 1
	s.names, s.open, s.nameNext = s.names[:s.open[last].names], s.open[:last], false
}

// twice returns a name that the innermost object has twice, or nil.
func (s *nameScanner) twice() []byte {
	own := s.names[s.open[len(s.open)-1].names:]
	if len(own) < 2 {
		return nil
	}
	for i, name := range own {
		if bytes.IndexByte(name, '\\') >= 0 {
			own[i] = unescaped(name)
		}
	}
	slices.SortFunc(own, bytes.Compare)
	for i := range own[1:] {
		if bytes.Equal(own[i], own[i+1]) {
			return own[i]
		}
	}
	return nil
}

// unescaped returns a quoted text with its characters in place of escapes.
func unescaped(quoted []byte) []byte {
	var text string
	_ = json.Unmarshal(quoted, &text) // the text is valid
	return []byte(`"` + text + `"`)
}

// mostPlace bounds the bytes of a place.
const mostPlace = 200

// place returns where a name of the innermost object is.
func (s *nameScanner) place(name []byte) string {
	var place []byte
	for i, l := range s.open[:len(s.open)-1] {
		if l.object {
			place = appendName(place, s.names[s.open[i+1].names-1]) // its last name so far
		} else {
			place = fmt.Appendf(place, "[%d]", l.index)
		}
	}
	if place = appendName(place, name); len(place) > mostPlace {
		return strings.ToValidUTF8(string(place[:mostPlace]), "") + "…"
	}
	return string(place)
}

// appendName appends a quoted name to a place.
func appendName(place, quoted []byte) []byte {
	if len(place) > 0 {
		place = append(place, '.')
	}
	return append(place, quoted[1:len(quoted)-1]...)
}
