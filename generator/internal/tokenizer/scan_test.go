package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzScanners compares the scanners of published patterns with regexp2.
func FuzzScanners(f *testing.F) {
	for _, s := range []string{"it's IT'S 'ſ'S 'll'LL 'x 're're'r", "a  b\n \n\n  c \r\n", "12345 1234 ١٢٣½x",
		" !?\n\n!\r x", "\u00a0\u3000x \u2028 ", "e\u0301 \u0301", "\U0001ccf0\U00010d4aé"} {
		f.Add(s)
	}
	var patterns []*pattern
	for source := range scanners {
		p, err := newPattern(source)
		if err != nil {
			f.Fatal(err)
		}
		p.re.MatchTimeout, p.limit = time.Hour, time.Hour
		patterns = append(patterns, p)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || len(text) > 1000 {
			return
		}
		for _, p := range patterns {
			got, _ := p.pieces(text)
			if want, err := p.search(newPacer(), text); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s cuts %q into %q, regexp2 into %q, %v", p.re, text, got, want, err)
			}
		}
	})
}

// TestScanners compares the scanners with regexp2 on many characters, each next to characters of
// every class.
func TestScanners(t *testing.T) {
	var b strings.Builder
	for _, span := range [][2]rune{{0, 0x3ff}, {0x1c80, 0x1c90}, {0x1ff0, 0x2200}, {0x3000, 0x3010},
		{0x10d40, 0x10d50}, {0x1f600, 0x1f610}} {
		for r := span[0]; r <= span[1]; r++ {
			b.WriteString(string(r) + "ab" + string(r) + "1 " + string(r) + "\n" + string(r) + "!  "[:r%3] + "'s"[:r%2])
		}
	}
	for source := range scanners {
		p, err := newPattern(source)
		if err != nil {
			t.Fatal(err)
		}
		p.re.MatchTimeout, p.limit = time.Hour, time.Hour
		got, _ := p.pieces(b.String())
		if want, err := p.search(newPacer(), b.String()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s cuts differently from regexp2: %v", source, err)
		}
	}
}

// TestClasses compares the scanners' classes of all characters with those of tokenizers.
func TestClasses(t *testing.T) {
	var classes map[string]string
	readJSON(t, "testdata/classes.json", &classes)
	want := make([]class, utf8.MaxRune+1)
	for name, c := range map[string]class{`\p{L}`: letter, `\p{N}`: number, `\s`: white} {
		for r := range parseRanges(t, classes[name]) {
			want[r] = c
		}
	}
	for r := range rune(utf8.MaxRune + 1) {
		if got, _ := classAt(string(r)); utf8.ValidRune(r) && got != want[r] {
			t.Errorf("%U is of class %d, want %d", r, got, want[r])
		}
	}
}
