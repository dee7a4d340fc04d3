package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestNFC compares form C with that of tokenizers for every character that decomposes, composes
// or moves, in order and at random.
func TestNFC(t *testing.T) {
	var vectors struct {
		Moving string
		Texts  [][2]string
	}
	readJSON(t, "testdata/nfc.json", &vectors)
	if len(vectors.Texts) == 0 {
		t.Fatal("no vectors")
	}
	for _, v := range vectors.Texts {
		if got := rewritten(nfc, v[0]); got != v[1] {
			t.Errorf("nfc(%.200q) = %.200q, want %.200q", v[0], got, v[1])
		}
	}
	moving := map[rune]bool{}
	for _, r := range vectors.Moving {
		moving[r] = true
	}
	for r := range rune(utf8.MaxRune + 1) {
		if !utf8.ValidRune(r) || decomposition(r, norm.NFD.PropertiesString(string(r))) != "" {
			continue
		}
		marks := decompose(newPacer(), source{text: "a" + string(r)}, norm.NFD, isAfter9)
		if marks[1].class > 0 != moving[r] {
			t.Errorf("%U has class %d", r, marks[1].class)
		}
	}
}

// FuzzNFC compares form C with that of x/text on texts without long runs of marks and without
// characters after Unicode 9, on which x/text follows the standard.
func FuzzNFC(f *testing.F) {
	for _, s := range []string{"", "e\u0301\u0327", "\u1100\u1161\u11a8", "\u212b\u0344a", "\u0915\u093c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		got := rewritten(nfc, text)
		if again := rewritten(nfc, got); again != got {
			t.Errorf("nfc(%q) = %q, and again %q", text, got, again)
		}
		if len(text) <= 30 && !strings.ContainsFunc(norm.NFD.String(text), isAfter9) && got != norm.NFC.String(text) {
			t.Errorf("nfc(%q) = %q, the library has %q", text, got, norm.NFC.String(text))
		}
		if len(text) > 3*len(got) {
			t.Errorf("%q shrinks to %q", text, got)
		}
	})
}

// joiner is the character that x/text's form C inserts into a long run of marks.
const joiner = "\u034f"

// TestLongRunsOfMarks shows why x/text's form C is not used.
func TestLongRunsOfMarks(t *testing.T) {
	text := "é" + strings.Repeat("\u0308", 40)
	if got := rewritten(nfc, text); got != text || !strings.Contains(norm.NFC.String(text), joiner) {
		t.Errorf("%q became %q", text, got)
	}
}
