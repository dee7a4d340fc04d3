package tokenizer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestRefusedPatterns tries constructs that Oniguruma and regexp2 read differently, or that
// could take exponential time.
func TestRefusedPatterns(t *testing.T) {
	for pattern, names := range map[string]string{
		``: "nothing", `a*`: "nothing", `a|`: "nothing", `(?!a)`: "nothing", `(a?|b)`: "nothing", `a{0,3}`: "nothing",
		`(a+)+`: "nested", `(?:a|b?)*c`: "nested", `((a{2}))*b`: "nested", `(?!a)*b`: "nested",
		`a++`: "++", `a??b`: "??", `a*+b`: "*+", `a{2}{3}`: "{2}{", `a{2}?`: "?", `a{,3}`: "{,3", `a{+1}`: "{+1",
		`a{3,2}`: "{3,2", `a{1024}`: "{1024", `a{2`: "{2",
		`\w`: `\\w`, `\d`: `\\d`, `\b`: `\\b`, `\h`: `\\h`, `\x41`: `\\x`, `\`: `\\`, `(a)\1`: `\\1`, `\é`: `\\é`,
		`\p{Han}`: `\\p{Han}`, `\p{^L}`: `\\p{^L}`, `\pL`: `\\pL`, `\p{L`: `\\p{L`, `\p{L Lu}`: `\\p{L`,
		`[\P{L}]`: `\\P{L}`,
		`.`:       `"."`, `^a`: `"^"`, `a$+`: "nested", `$`: "nothing", `+`: `"+"`, `{`: `"{"`,
		`a)`: `")"`, `(a`: "without )", `[a`: "without ]", `]`: `"]"`,
		`[]a]`: "[]", `[a[b]]`: "[[", `[[:alpha:]]`: "[[", `[a&&b]`: "[&", `[-a]`: "[-", `[a-]`: "[-", `[z-a]`: "z-a",
		`[a-\s]`: `a-`, `[a-b-c]`: "[-",
		`(?<n>a)`: "(?<n", `(?<=a)b`: "(?<=", `(?>a)`: "(?>a", `(?i)a`: "(?i)", `(?x:a)`: "(?x:",
		`(?i:é)`: "é", `(?i:ss)`: "ss", `(?i:aFi)`: "fi", `(?i:[ab])`: "(?i:", `(?i:\p{Lu})`: `\\p`,
		strings.Repeat("(", 17) + "a" + strings.Repeat(")", 17): "deeper",
		strings.Repeat("a", maxPattern+1):                       "longer",
	} {
		_, err := newPattern(pattern)
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%.40q: %v, want %v", pattern, err, ErrUnsupported)
			continue
		}
		if _, construct, _ := strings.Cut(err.Error(), ErrUnsupported.Error()); !strings.Contains(construct, names) {
			t.Errorf("%.40q: %v, want an error naming %q", pattern, err, names)
		}
	}
}

// pieces returns the pieces that p cuts text into.
func (p *pattern) pieces(text string) (pieces []string, err error) {
	err = p.split(newPacer(), text, func(piece string) { pieces = append(pieces, piece) })
	return pieces, err
}

// TestSlowPatterns tries a pattern that scans a long run again from each position.
func TestSlowPatterns(t *testing.T) {
	p, err := newPattern(`a+b|a`)
	if err != nil {
		t.Fatal(err)
	}
	if p.re.MatchTimeout != maxSplit || p.limit != maxSplit {
		t.Errorf("limits of %v and %v", p.re.MatchTimeout, p.limit)
	}
	p.re.MatchTimeout = time.Millisecond
	if _, err := p.pieces(strings.Repeat("a", 1<<20)); !errors.Is(err, errSlow) {
		t.Errorf("one match: %v", err)
	}
	p.re.MatchTimeout, p.limit = time.Hour, time.Millisecond
	if _, err := p.pieces(strings.Repeat("a", 1<<14)); !errors.Is(err, errSlow) {
		t.Errorf("many matches: %v", err)
	}
}

// FuzzPattern checks that regexp2 compiles each pattern that translate accepts, and that the
// pieces make up the text.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{gpt2Pattern, `(?i:'s|k)|[^\s\p{L}a-z]{1,3}|\P{N}(?=x)`, `[!-/:-~]`} {
		f.Add(s, "It's 12 x")
	}
	f.Fuzz(func(t *testing.T, source, text string) {
		p, err := newPattern(source)
		if err != nil || !utf8.ValidString(text) || len(source) > 100 || len(text) > 30 {
			if err != nil && !errors.Is(err, ErrUnsupported) {
				t.Errorf("%q: %v", source, err)
			}
			return
		}
		pieces, err := p.pieces(text)
		if err != nil || strings.Join(pieces, "") != text || slices.Contains(pieces, "") {
			t.Errorf("%q cuts %q into %q, %v", source, text, pieces, err)
		}
	})
}
