package tokenizer

import (
	"slices"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestBERTCharacters compares the classes of BertNormalizer, BertPreTokenizer and StripAccents with
// those of tokenizers, for every character.
func TestBERTCharacters(t *testing.T) {
	var classes map[string]string
	readJSON(t, "testdata/bert_characters.json", &classes)
	for name, has := range map[string]func(r rune) bool{
		"removed":     isControlCharacter,
		"spaces":      func(r rune) bool { return unicode.IsSpace(r) && !isControlCharacter(r) },
		"chinese":     func(r rune) bool { return within(ideographs, r) },
		"nonspacing":  func(r rune) bool { return isNonspacing(r) && rewritten(nfd, string(r)) == string(r) },
		"accents":     isAccent,
		"punctuation": isPunctuation,
	} {
		var want []rune
		for r := range parseRanges(t, classes[name]) {
			want = append(want, r)
		}
		slices.Sort(want)
		var got []rune
		for r := range rune(utf8.MaxRune + 1) {
			if utf8.ValidRune(r) && has(r) {
				got = append(got, r)
			}
		}
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %d characters, want %d", name, len(got), len(want))
		}
	}
}
