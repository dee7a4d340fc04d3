package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCharacters compares Digits, Lowercase and NFKC with those of tokenizers, for every character
// but Hangul syllables, which TestNFC has.
func TestCharacters(t *testing.T) {
	var want struct {
		Numeric     string
		Lower, NFKC map[string]string
	}
	readJSON(t, "testdata/characters.json", &want)
	numeric := map[rune]bool{}
	for _, r := range want.Numeric {
		numeric[r] = true
	}
	if len(numeric) < 1900 || len(want.Lower) < 1400 || len(want.NFKC) < 4000 {
		t.Fatalf("%d, %d and %d characters", len(numeric), len(want.Lower), len(want.NFKC))
	}
	for r := range rune(utf8.MaxRune + 1) {
		if !utf8.ValidRune(r) || 0xAC00 <= r && r <= 0xD7A3 {
			continue
		}
		if isNumeric(r) != numeric[r] {
			t.Errorf("%U is numeric: %v", r, numeric[r])
		}
		checkRewrite(t, "lowercase", lowercase, r, want.Lower, 3)
		checkRewrite(t, "nfkc", nfkc, r, want.NFKC, 4)
	}
}

// rewritten returns the result for a trusted text.
func rewritten(apply func(*pacer, source) source, text string) string {
	return apply(newPacer(), source{text: text}).text
}

// checkRewrite compares the result for r, and the ratio of its bytes with the largest one.
func checkRewrite(t *testing.T, name string, apply func(*pacer, source) source, r rune,
	want map[string]string, shrinks int,
) {
	text := string(r)
	result, changes := want[text]
	if !changes {
		result = text
	}
	got := rewritten(apply, text)
	if got != result || len(text) > shrinks*len(got) {
		t.Errorf("%s(%U) = %+q, want %+q", name, r, got, result)
	}
}

// FuzzNFKC checks that form KC is stable, that it is form C of itself, and how much it shrinks.
func FuzzNFKC(f *testing.F) {
	for _, s := range []string{"", "ﬁ①㎞", "𝔘\u0308\u0304", "ｶﾞ",
		"\uffa1\uffc2\uffaf", "e\u0301\u0327", "\u1100\u1161\u11a8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		got := rewritten(nfkc, text)
		if again := rewritten(nfkc, got); again != got || rewritten(nfc, got) != got {
			t.Errorf("nfkc(%q) = %q, and again %q", text, got, again)
		}
		if len(text) > 4*len(got) {
			t.Errorf("%q shrinks to %q", text, got)
		}
		if lower := rewritten(lowercase, text); len(text) > 3*len(lower) || strings.ContainsRune(lower, 'I') {
			t.Errorf("%q becomes %q in lower case", text, lower)
		}
	})
}
