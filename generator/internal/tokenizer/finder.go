package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A finder returns the range of the first match in a non-empty text, or its length twice if
// there is none. Finders stand for patterns with gaps between matches, as DeepSeek's models have
// them. They take linear time and give the results of regexp2; FuzzFinders compares the two.
type finder func(p *pacer, text string) (start, end int)

// newFinder returns the finder of a pattern of the forms \s+$, C, C+, C{2,}, \s?C and \s?C+, in which
// C is a space, \s, or a class such as [a-z] or \p{L}. It returns nil for other patterns.
func newFinder(source string) finder {
	if source == `\s+$` {
		return findLineEnd
	}
	source, spaced := strings.CutPrefix(source, `\s?`)
	least := 1
	source, repeated := strings.CutSuffix(source, "+")
	if two, ok := strings.CutSuffix(source, "{2,}"); ok && !spaced && !repeated {
		source, repeated, least = two, true, 2
	}
	set, ok := parseSet(source)
	if !ok {
		return nil
	}
	return (&setFinder{set, spaced, repeated, least}).find
}

// splitFound is split with the finder.
func (p *pattern) splitFound(pace *pacer, text string, emit func(string)) {
	for text != "" {
		start, end := p.find(pace, text)
		if start > 0 {
			emit(text[:start])
		}
		if start < end {
			emit(text[start:end])
		}
		text = text[end:]
	}
}

// findLineEnd finds \s+$: white space that ends before a newline or at the end of the text. Of
// a run of white space it is the part before the last newline, or the whole last run.
func findLineEnd(p *pacer, text string) (start, end int) {
	for start < len(text) {
		next := strings.IndexFunc(text[start:], unicode.IsSpace)
		if next < 0 {
			break
		}
		p.spent(next * 5)
		start += next
		n := run(p, text[start:], white, unlimited)
		if start+n == len(text) {
			return start, len(text)
		}
		if last := strings.LastIndexByte(text[start:start+n], '\n'); last > 0 {
			return start, start + last
		}
		start += n
	}
	return len(text), len(text)
}

// setFinder finds one character of a set, or a run of them, with the white space before it if
// spaced.
type setFinder struct {
	set              *runeSet
	spaced, repeated bool
	least            int // characters of a run
}

func (f *setFinder) find(p *pacer, text string) (start, end int) {
	size := 0
	for n := uint(1); start < len(text); start += size {
		if n++; n%block == 0 {
			p.spent(block * 10)
		}
		var c rune
		c, size = utf8.DecodeRuneInString(text[start:])
		if f.spaced && unicode.IsSpace(c) {
			if m, _ := f.match(p, text[start+size:]); m > 0 {
				return start, start + size + m
			}
		}
		if f.set.has(c) {
			m, characters := f.match(p, text[start:])
			if characters >= f.least {
				return start, start + m
			}
			size = m // no match begins within a run that is too short
		}
	}
	return len(text), len(text)
}

// match returns the bytes and the number of the set's characters at the beginning of text.
func (f *setFinder) match(p *pacer, text string) (n, characters int) {
	for n < len(text) {
		if uint(characters)%block == block-1 {
			p.spent(block * 10)
		}
		c, size := utf8.DecodeRuneInString(text[n:])
		if !f.set.has(c) {
			break
		}
		n += size
		if characters++; !f.repeated {
			break
		}
	}
	return n, characters
}

// runeSet is a set of characters.
type runeSet struct {
	ascii  [utf8.RuneSelf]bool
	ranges [][2]rune // in increasing order
	tables []*unicode.RangeTable
}

func (s *runeSet) has(r rune) bool {
	if r < utf8.RuneSelf {
		return s.ascii[r]
	}
	return within(s.ranges, r) || unicode.In(r, s.tables...)
}

// finish sorts and joins the ranges, and fills the table of ASCII.
func (s *runeSet) finish() *runeSet {
	slices.SortFunc(s.ranges, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	var joined [][2]rune
	for _, r := range s.ranges {
		if n := len(joined); n > 0 && r[0] <= joined[n-1][1]+1 {
			joined[n-1][1] = max(joined[n-1][1], r[1])
			continue
		}
		joined = append(joined, r)
	}
	s.ranges = joined
	for r := range rune(utf8.RuneSelf) {
		s.ascii[r] = within(s.ranges, r) || unicode.In(r, s.tables...)
	}
	return s
}

// parseSet parses a class. ok is false for an exclusion and for escapes other than categories,
// \r, \n, \t and punctuation.
func parseSet(source string) (set *runeSet, ok bool) {
	set = &runeSet{}
	switch source {
	case " ":
		set.ranges = [][2]rune{{' ', ' '}}
		return set.finish(), true
	case `\s`:
		set.tables = []*unicode.RangeTable{unicode.White_Space}
		return set.finish(), true
	}
	body, opened := strings.CutPrefix(source, "[")
	body, closed := strings.CutSuffix(body, "]")
	if !opened && !closed {
		rest, ok := set.category(source)
		return set.finish(), ok && rest == ""
	}
	if !opened || !closed || body == "" || body[0] == '^' {
		return nil, false
	}
	for body != "" {
		if body, ok = set.item(body); !ok {
			return nil, false
		}
	}
	return set.finish(), true
}

// category adds the characters of \p{name} at the beginning of source.
func (s *runeSet) category(source string) (rest string, ok bool) {
	name, opened := strings.CutPrefix(source, `\p{`)
	name, rest, closed := strings.Cut(name, "}")
	added, known := since15[name]
	if !opened || !closed || !known {
		return "", false
	}
	s.tables = append(s.tables, unicode.Categories[name])
	s.ranges = append(s.ranges, added...)
	return rest, true
}

// item adds a character, a range or an escape at the beginning of source.
func (s *runeSet) item(source string) (rest string, ok bool) {
	if strings.HasPrefix(source, `\p`) {
		return s.category(source)
	}
	low, rest, ok := setRune(source)
	if !ok {
		return "", false
	}
	high := low
	if after, ranged := strings.CutPrefix(rest, "-"); ranged && after != "" {
		if high, rest, ok = setRune(after); !ok || high < low {
			return "", false
		}
	}
	s.ranges = append(s.ranges, [2]rune{low, high})
	return rest, true
}

// setRune returns the character at the beginning of a class, or of its escape.
func setRune(source string) (r rune, rest string, ok bool) {
	source, escaped := strings.CutPrefix(source, `\`)
	r, size := utf8.DecodeRuneInString(source)
	rest = source[size:]
	if !escaped {
		return r, rest, source != "" && !strings.ContainsRune(`[]&`, r)
	}
	if control := map[rune]rune{'r': '\r', 'n': '\n', 't': '\t'}[r]; control != 0 {
		return control, rest, true
	}
	return r, rest, r < utf8.RuneSelf && (unicode.IsPunct(r) || unicode.IsSymbol(r))
}
