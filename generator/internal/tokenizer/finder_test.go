package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// found are patterns that finders stand for; the last ones are of DeepSeek's models.
var found = []string{`\s+$`, ` {2,}`, `\s{2,}`, ` `, `\s+`, `\p{L}{2,}`,
	`[\r\n]`, "[\r\n]", `\p{N}`, `\s?\p{L}+`, `[ab\-]+`, `\s?[\p{Lu}0-9]`,
	`\s?[!-/:-~！-／：-～‘-‟　-。]+`, `[一-龥ࠀ-一가-퟿]+`, `\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿＡ-Ｚａ-ｚ𐐀-𐑏]+`}

// comparisons returns the patterns of found without a time limit.
func comparisons(t testing.TB) (list []*pattern) {
	for _, source := range found {
		p, err := newPattern(source)
		if err != nil {
			t.Fatal(err)
		}
		if p.find == nil {
			t.Errorf("%s has no finder", source)
		}
		p.re.MatchTimeout, p.limit = time.Hour, time.Hour
		list = append(list, p)
	}
	return list
}

func compareFinders(t *testing.T, patterns []*pattern, text string) {
	for _, p := range patterns {
		got, _ := p.pieces(text)
		if want, err := p.search(newPacer(), text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s cuts %.200q into %.200q, regexp2 into %.200q, %v", p.re, text, got, want, err)
		}
	}
}

// FuzzFinders compares the finders with regexp2.
func FuzzFinders(f *testing.F) {
	for _, s := range []string{"a  \n\n b ", "\n", " \n\nx  ", "\r\n \r\nx", "　　。a", " a1 ٣½!?", "  -a-\u2028"} {
		f.Add(s)
	}
	patterns := comparisons(f)
	f.Fuzz(func(t *testing.T, text string) {
		if utf8.ValidString(text) && len(text) < 1000 {
			compareFinders(t, patterns, text)
		}
	})
}

// TestFinders compares the finders with regexp2 on many characters, each next to white space,
// letters and newlines.
func TestFinders(t *testing.T) {
	var b strings.Builder
	for _, span := range [][2]rune{{0, 0x3ff}, {0x1c80, 0x1c90}, {0x1ff0, 0x2040}, {0x3000, 0x3010},
		{0x10d40, 0x10d50}, {0xff00, 0xff60}} {
		for r := span[0]; r <= span[1]; r++ {
			b.WriteString(string(r) + "ab " + string(r) + "1 \u3000" + string(r) + "\n  " + "!"[:r%2] + string(r))
		}
	}
	compareFinders(t, comparisons(t), b.String())
}

// Text without a match, and long runs of white space, take linear time.
func TestFindersAreLinear(t *testing.T) {
	for _, source := range []string{`\s+$`, `\s?[A-Za-z]+`, `[一-龥]+`} {
		p, err := newPattern(source)
		if err != nil {
			t.Fatal(err)
		}
		p.re.MatchTimeout, p.limit = 0, 0 // regexp2 fails at once
		for _, unit := range []string{" ", " \n", "\n", "1", "a", "漢"} {
			text := strings.Repeat(unit, 1<<20) + "x"
			if pieces, err := p.pieces(text); err != nil || strings.Join(pieces, "") != text {
				t.Errorf("%s: %q repeated: %v", source, unit, err)
			}
		}
	}
}

// Patterns of other forms have no finder.
func TestPatternsWithoutFinder(t *testing.T) {
	for _, source := range []string{`[^a]`, `[\s]`, `[\S]+`, `ab+`, ` {3,}`, `\s?[a]{2,}`, `[a]{2,}+`, `[a]|[b]`,
		`[a-z]*`,
		`\P{L}`,
		`[a&b]`, `a`, ``, `[b-a]`, `[`, `[]`, `\s?`, `\p{L`, `[\p{X}]`} {
		if newFinder(source) != nil {
			t.Errorf("%q has a finder", source)
		}
	}
}
