package tokenizer

import (
	"cmp"
	"slices"
	"sort"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// after9 holds the characters that x/text decomposes or reorders and tokenizers does not: the
// latter normalises by Unicode 9. TestNFC compares the results with those of tokenizers.
var after9 = [][2]rune{
	{0x7FD, 0x7FD}, {0x898, 0x89F}, {0x8CA, 0x8D3}, {0x9FE, 0x9FE}, {0xC3C, 0xC3C}, {0xD3B, 0xD3C},
	{0xEBA, 0xEBA}, {0x1715, 0x1715}, {0x1ABF, 0x1ACE}, {0x1DF6, 0x1DFA}, {0xA82C, 0xA82C},
	{0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
	{0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11938, 0x11938},
	{0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
	{0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
	{0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
	{0x1E4EC, 0x1E4EF},
}

func isAfter9(r rune) bool { return within(after9, r) }

// within reports whether r is in one of spans, which are in increasing order.
func within(spans [][2]rune, r rune) bool {
	i := sort.Search(len(spans), func(i int) bool { return spans[i][1] >= r })
	return i < len(spans) && spans[i][0] <= r
}

// mark is a character and its canonical combining class; a starter has class 0.
type mark struct {
	r     rune
	class uint8
	data  bool // it comes from data, or a part of it does
}

// nfc returns text in Unicode's normalisation form C, in n log n time. It uses only the tables
// of x/text: the functions of x/text insert a joiner into a run of more than 30 combining
// marks, and tokenizers does not.
func nfc(p *pacer, s source) source {
	if isPlain(s.text) {
		return s
	}
	return joined(compose(p, decompose(p, s, norm.NFD, isAfter9)))
}

// nfd returns text in Unicode's normalisation form D.
func nfd(p *pacer, s source) source {
	if isASCII(s.text) {
		return s
	}
	return joined(decompose(p, s, norm.NFD, isAfter9))
}

// compose composes decomposed characters in place.
func compose(p *pacer, marks []mark) []mark {
	out := marks[:0]
	starter, last := -1, uint8(0) // index of the last starter in out, class of the last character in out
	for _, m := range marks {
		p.spent(50)
		if starter >= 0 && (len(out)-1 == starter || last < m.class) {
			if c, ok := composePair(out[starter].r, m.r); ok {
				out[starter].r = c
				out[starter].data = out[starter].data || m.data
				continue
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		out, last = append(out, m), m.class
	}
	return out
}

// joined returns the text of marks.
func joined(marks []mark) source {
	var b sourceBuilder
	b.Grow(len(marks))
	for _, m := range marks {
		b.mark(m.data)
		b.WriteRune(m.r)
	}
	return b.source()
}

// isPlain reports whether all characters of text are below U+0300, which means that text is
// in form C.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] >= 0xCC {
			return false
		}
	}
	return true
}

// decompose returns the decomposition of text by form, NFD or NFKD, in canonical order. It leaves
// the characters that newer reports alone.
func decompose(p *pacer, s source, form norm.Form, newer func(rune) bool) []mark {
	marks := make([]mark, 0, len(s.text))
	for i, r := range s.text {
		p.spent(100)
		data := s.data(i, i+utf8.RuneLen(r))
		properties := form.PropertiesString(string(r))
		switch d := decomposition(r, properties); {
		case r < 0x300 && d == "" || newer(r):
			marks = append(marks, mark{r, 0, data})
		case d == "":
			marks = append(marks, mark{r, properties.CCC(), data})
		default:
			for _, part := range d {
				marks = append(marks, mark{part, norm.NFD.PropertiesString(string(part)).CCC(), data})
			}
		}
	}
	for from := 0; from < len(marks); from++ {
		to := from
		for to < len(marks) && marks[to].class != 0 {
			to++
		}
		p.spent(10)
		slices.SortStableFunc(marks[from:to], func(a, b mark) int {
			p.spent(5)
			return cmp.Compare(a.class, b.class)
		})
		from = to
	}
	return marks
}

// decomposition returns the full canonical decomposition of r, or "" if it has none.
func decomposition(r rune, p norm.Properties) string {
	if 0xAC00 <= r && r <= 0xD7A3 { // Hangul syllables decompose by arithmetic, not by the tables
		return norm.NFD.String(string(r))
	}
	return string(p.Decomposition())
}

// composePair returns the character that a and b compose to, if there is one.
func composePair(a, b rune) (rune, bool) {
	if norm.NFC.PropertiesString(string(b)).BoundaryBefore() {
		return 0, false
	}
	s := norm.NFC.String(string(a) + string(b))
	c, size := utf8.DecodeRuneInString(s)
	return c, size == len(s) && !isAfter9(c)
}
