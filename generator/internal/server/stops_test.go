package server

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestStopFilter(t *testing.T) {
	for name, c := range map[string]struct {
		stops  []string
		tokens []string
		want   string
		stop   bool
	}{
		"none":                        {nil, []string{"a", "b"}, "ab", false},
		"within a token":              {[]string{"END"}, []string{"xENDy"}, "x", true},
		"across tokens":               {[]string{"END"}, []string{"xE", "N", "Dy"}, "x", true},
		"begins, then differs":        {[]string{"END"}, []string{"xE", "N", "E"}, "xENE", false},
		"begins again":                {[]string{"aab"}, []string{"a", "a", "a", "b"}, "a", true},
		"open at the end":             {[]string{"END"}, []string{"x", "EN"}, "xEN", false},
		"first of two":                {[]string{"two", "one"}, []string{"a one a two"}, "a ", true},
		"one inside another":          {[]string{"bc", "abcd"}, []string{"xab", "cd"}, "x", true},
		"the outer does not complete": {[]string{"bc", "abcd"}, []string{"xab", "ce"}, "xa", true},
		"the inner at the end":        {[]string{"bc", "abcd"}, []string{"xab", "c"}, "xa", true},
		"same beginning":              {[]string{"abc", "ab"}, []string{"xab", "c"}, "x", true},
		"many bytes a character":      {[]string{"née"}, []string{"né", "n", "ée"}, "né", true},
	} {
		t.Run(name, func(t *testing.T) {
			text, stop := filterAll(c.stops, c.tokens)
			if text != c.want || stop != c.stop {
				t.Errorf("got %q, stopped %t; want %q, %t", text, stop, c.want, c.stop)
			}
		})
	}
}

// The result depends on the text alone, not on where the tokens divide it.
func TestStopFilterIgnoresTokenBorders(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteByte("ab"[rng.IntN(2)])
		}
		return b.String()
	}
	for range 20_000 {
		text := letters(rng.IntN(12))
		stops := []string{letters(1 + rng.IntN(4)), letters(1 + rng.IntN(4)), letters(1 + rng.IntN(6))}
		want := text
		for _, s := range stops {
			if at := strings.Index(text, s); at >= 0 && at < len(want) {
				want = text[:at]
			}
		}
		var tokens []string
		for rest := text; rest != ""; {
			n := 1 + rng.IntN(len(rest))
			tokens, rest = append(tokens, rest[:n]), rest[n:]
		}
		if got, stop := filterAll(stops, tokens); got != want || stop != (want != text) {
			t.Fatalf("stops %q, tokens %q: got %q, stopped %t; want %q", stops, tokens, got, stop, want)
		}
	}
}

func filterAll(stops, tokens []string) (text string, stopped bool) {
	f := stopFilter{stops: stops}
	for _, token := range tokens {
		shown, stop := f.push(token)
		text += shown
		if stop {
			return text, true
		}
	}
	shown, stop := f.flush()
	return text + shown, stop
}
