package tokenizer

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfkc returns text in Unicode's normalisation form KC, as tokenizers has it.
func nfkc(p *pacer, s source) source {
	if isASCII(s.text) {
		return s
	}
	return joined(compose(p, decompose(p, s, norm.NFKD, isAfter9Compatible)))
}

// nfkd returns text in Unicode's normalisation form KD.
func nfkd(p *pacer, s source) source {
	if isASCII(s.text) {
		return s
	}
	return joined(decompose(p, s, norm.NFKD, isAfter9Compatible))
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// lowercase returns text with each character in lower case. As in Rust, and unlike Go, a capital
// I with a dot keeps its dot as a character of its own.
func lowercase(p *pacer, s source) source {
	return eachRune(p, s, func(b *sourceBuilder, r rune) {
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(unicode.ToLower(r)))
		case r == 'İ':
			b.WriteString("i\u0307")
		default:
			b.WriteRune(toLower(r))
		}
	})
}

// after9Compatible holds the characters that only NFKD decomposes in x/text and not in tokenizers,
// which normalises by Unicode 9.
var after9Compatible = [][2]rune{
	{0x32FF, 0x32FF}, {0xA7F2, 0xA7F4}, {0xAB69, 0xAB69}, {0x10781, 0x10785}, {0x10787, 0x107B0},
	{0x107B2, 0x107BA}, {0x1E030, 0x1E06D}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
}

func isAfter9Compatible(r rune) bool { return isAfter9(r) || within(after9Compatible, r) }

// upperAfter15 maps the capital letters that Unicode 16 and 17 added, which Go 1.26 does not know,
// to the distance of their small letters. lowerAfter15 does the same for single letters.
var (
	upperAfter15 = map[[2]rune]rune{{0x10D50, 0x10D65}: 0x20, {0x16EA0, 0x16EB8}: 0x1B}
	lowerAfter15 = map[rune]rune{
		0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3, 0xA7D4: 0xA7D5,
		0xA7DA: 0xA7DB, 0xA7DC: 0x19B,
	}
)

// toLower returns the small letter of r by Unicode 17, or r.
func toLower(r rune) rune {
	if lower, ok := lowerAfter15[r]; ok {
		return lower
	}
	for span, distance := range upperAfter15 {
		if span[0] <= r && r <= span[1] {
			return r + distance
		}
	}
	return unicode.ToLower(r)
}
