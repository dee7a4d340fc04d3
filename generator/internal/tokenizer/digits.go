package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// newDigits reads Digits, which cuts numeric characters off the others.
func newDigits(raw json.RawMessage) (splitter, error) {
	var c struct {
		Type       string `json:"type"`
		Individual bool   `json:"individual_digits"`
	}
	if err := decode(raw, &c); err != nil {
		return splitter{}, fmt.Errorf("Digits: %w", err)
	}
	return splitter{cut: func(p *pacer, text string, emit func(string)) {
		cutDigits(p, text, c.Individual, emit)
	}}, nil
}

// cutDigits calls emit with the pieces of a non-empty text. Each numeric character is a piece, or
// each run of them.
func cutDigits(pace *pacer, text string, each bool, emit func(string)) {
	from, before, n := 0, false, uint(0)
	for i, r := range text {
		if n++; n%block == 0 {
			pace.spent(block * 5)
		}
		is := isNumeric(r)
		if i > from && (is != before || is && each) {
			emit(text[from:i])
			from = i
		}
		before = is
	}
	emit(text[from:])
}

// numeric17 are the numbers that Unicode 17 adds to those of 16. Digits follows Rust's standard
// library, which is newer than the regex libraries of tokenizers.
var numeric17 = [][2]rune{{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}}

// isNumeric reports whether Rust's char::is_numeric holds.
func isNumeric(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9'
	}
	return unicode.IsNumber(r) || within(since15["N"], r) || within(numeric17, r)
}
