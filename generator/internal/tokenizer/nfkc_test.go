package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
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
		checkRewrite(t, "Lowercase", r, want.Lower)
		checkRewrite(t, "NFKC", r, want.NFKC)
		if _, ok := want.NFKC[string(r)]; ok || decomposition(r, norm.NFD.PropertiesString(string(r))) != "" {
			for name := range plainRewrites {
				checkRatios(t, name, string(r))
			}
		}
	}
}

// rewritten returns the result for a trusted text.
func rewritten(apply func(*pacer, source) source, text string) string {
	return apply(newPacer(), source{text: text}).text
}

// checkRewrite compares the result for r.
func checkRewrite(t *testing.T, name string, r rune, want map[string]string) {
	text := string(r)
	result, changes := want[text]
	if !changes {
		result = text
	}
	if got := checkRatios(t, name, text); got != result {
		t.Errorf("%s(%U) = %+q, want %+q", name, r, got, result)
	}
}

// checkRatios compares the bytes of a text and of its result, which it returns.
func checkRatios(t *testing.T, name, text string) string {
	w := plainRewrites[name]
	got := rewritten(w.apply, text)
	if len(got) > 0 && len(text) > w.shrinks*len(got) || len(got) > w.grows*len(text) {
		t.Errorf("%s makes %d bytes of %d, %+q", name, len(got), len(text), text)
	}
	return got
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
