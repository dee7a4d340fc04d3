package server

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"reel.internal/reel/protocol"
)

// buffered passes pieces, each the bytes of one token, through a text buffer. It returns
// the texts of the emitted tokens, the number of tokens emitted after each piece, and
// whether a stop string ended the text.
func buffered(stops []string, pieces ...string) (texts []string, after []int, stopped bool) {
	b := textBuffer{decoder: &pieceDecoder{pieces: pieces}, stops: stopFilter{stops: stops}}
	b.emit = func(t *protocol.Token) { texts = append(texts, t.Text) }
	for i := range pieces {
		if stopped = b.push(&protocol.Token{Token: int32(i)}); stopped {
			return texts, append(after, len(texts)), true
		}
		after = append(after, len(texts))
	}
	return texts, after, b.flush()
}

// pieceDecoder decodes token i to pieces[i].
type pieceDecoder struct {
	pieces []string
	held   string
}

func (d *pieceDecoder) Push(id int32) string {
	all := d.held + d.pieces[id]
	whole := len(all)
	for n := 1; n <= min(3, len(all)); n++ {
		if r := all[len(all)-n]; utf8.RuneStart(r) && !utf8.FullRuneInString(all[len(all)-n:]) {
			whole = len(all) - n
		}
	}
	d.held = all[whole:]
	return all[:whole]
}

func (d *pieceDecoder) Held() int { return len(d.held) }

func (d *pieceDecoder) Flush() string {
	if d.held == "" {
		return ""
	}
	d.held = ""
	return string(utf8.RuneError)
}

func TestTextBuffer(t *testing.T) {
	end := []string{"END"}
	for name, c := range map[string]struct {
		stops  []string
		pieces []string
		want   []string
		after  []int // emitted after each piece
		stop   bool
	}{
		"plain":                       {nil, []string{"a", "b"}, []string{"a", "b"}, []int{1, 2}, false},
		"character of two tokens":     {nil, []string{"\xc3", "\xa9x"}, []string{"", "éx"}, []int{0, 2}, false},
		"half a character at the end": {nil, []string{"a", "\xc3"}, []string{"a", "\uFFFD"}, []int{1, 1}, false},
		"stop within a token":         {end, []string{"xENDy"}, []string{"x"}, []int{1}, true},
		"stop across tokens":          {end, []string{"xE", "N", "Dy"}, []string{"x", "", ""}, []int{0, 0, 3}, true},
		"begins, then differs":        {end, []string{"xE", "N", "E"}, []string{"xE", "N", "E"}, []int{0, 0, 2}, false},
		"begins again": {[]string{"aab"}, []string{"a", "a", "a", "b"},
			[]string{"a", "", "", ""}, []int{0, 0, 1, 4}, true},
		"open at the end":  {end, []string{"x", "EN"}, []string{"x", "EN"}, []int{1, 1}, false},
		"the first of two": {[]string{"two", "one"}, []string{"a one a two"}, []string{"a "}, []int{1}, true},
		"one inside another": {[]string{"bc", "abcd"}, []string{"xab", "cd"},
			[]string{"x", ""}, []int{0, 2}, true},
		"the inner is complete": {[]string{"bc", "abcd"}, []string{"xab", "c"},
			[]string{"xa", ""}, []int{0, 2}, true},
		"a control token between": {end, []string{"E", "", "ND"}, []string{"", "", ""}, []int{0, 0, 3}, true},
		"PROTOCOL.md": {end, []string{"The ", "\xe2\x82", "\xac E", "U", " EN", "D."},
			[]string{"The ", "", "€ E", "U", " ", ""}, []int{1, 1, 2, 4, 4, 6}, true},
		"PROTOCOL.md, cancelled": {end, []string{"The ", " EN"}, []string{"The ", " EN"}, []int{1, 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			texts, after, stop := buffered(c.stops, c.pieces...)
			if strings.Join(texts, "|") != strings.Join(c.want, "|") || stop != c.stop {
				t.Errorf("got %q, stopped %t; want %q, %t", texts, stop, c.want, c.stop)
			}
			for i, n := range c.after {
				if after[i] != n {
					t.Errorf("%d tokens were sent after piece %d, want %d", after[i], i, n)
				}
			}
		})
	}
}

// For random tokens and stop strings, the text equals that of a plain search over the whole
// text, each piece is valid UTF-8, and each token up to the stop is emitted once.
func TestTextBufferAgainstPlainSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString([]string{"a", "b", "é", "€"}[rng.IntN(4)])
		}
		return b.String()
	}
	for range 20_000 {
		text := letters(rng.IntN(12))
		stops := []string{letters(1 + rng.IntN(3)), letters(1 + rng.IntN(3)), letters(1 + rng.IntN(5))}
		pieces := split(rng, text)
		want, count, found := plainSearch(stops, pieces)
		texts, _, stop := buffered(stops, pieces...)
		got := strings.Join(texts, "")
		if got != want || len(texts) != count || stop != found {
			t.Fatalf("stops %q, pieces %q: got %q, stopped %t; want %q in %d tokens",
				stops, pieces, texts, stop, want, count)
		}
		for _, piece := range texts {
			if !utf8.ValidString(piece) {
				t.Fatalf("pieces %q: %q is not UTF-8", pieces, piece)
			}
		}
	}
}

func split(rng *rand.Rand, text string) (pieces []string) {
	for text != "" {
		n := 1 + rng.IntN(min(5, len(text)))
		pieces, text = append(pieces, text[:n]), text[n:]
	}
	return pieces
}

// plainSearch searches the whole text for the stop strings after each token.
func plainSearch(stops, pieces []string) (text string, count int, found bool) {
	for i, piece := range pieces {
		text += piece
		cut := len(text)
		for _, s := range stops {
			if at := strings.Index(text, s); at >= 0 {
				cut, found = min(cut, at), true
			}
		}
		if found {
			return text[:cut], i + 1, true
		}
	}
	return text, len(pieces), false
}
