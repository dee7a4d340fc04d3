package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is matched in text before normalisation and BPE.
type addedToken struct {
	ID         *int32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // matches only if no word character is beside it
	LStrip     bool   `json:"lstrip"`      // consumes the white space before it
	RStrip     bool   `json:"rstrip"`      // consumes the white space after it
	Normalized bool   `json:"normalized"`  // is matched in the normalised text
	Special    bool   `json:"special"`
	control    bool   // see isControl
}

// addedTokens finds added tokens in text.
type addedTokens struct {
	normalizer normalizer
	passes     [2]matcher // tokens to match before normalisation, and after it
}

// segment is either text or an added token.
type segment struct {
	source
	id int32 // -1 for text
}

// isControl reports whether a is a control token: data never becomes one. Some checkpoints have
// markers of roles that are not special, so their form decides too, as in llama.cpp.
func (a *addedToken) isControl() bool {
	return a.Special || strings.HasPrefix(a.Content, "<|") && strings.HasSuffix(a.Content, "|>") ||
		strings.HasPrefix(a.Content, "<｜") && strings.HasSuffix(a.Content, "｜>") // DeepSeek
}

func newAddedTokens(list []addedToken, n normalizer) (addedTokens, error) {
	a := addedTokens{normalizer: n}
	for _, t := range list {
		i := 0
		if t.Normalized {
			i = 1
			t.Content = n.normalizeString(t.Content)
		}
		a.passes[i].tokens = append(a.passes[i].tokens, t)
	}
	return a, errors.Join(a.passes[0].sort(), a.passes[1].sort())
}

// split cuts a text into added tokens and the normalised text between them. No segment is
// empty.
func (a *addedTokens) split(p *pacer, text source) []segment {
	var out []segment
	for _, s := range a.passes[0].split(p, nil, text) {
		if s.id >= 0 {
			out = append(out, s)
			continue
		}
		if !a.passes[1].control {
			s.borders = nil
		}
		out = a.passes[1].split(p, out, a.normalizer.normalize(p, s.source))
	}
	return out
}

// matcher finds the tokens of one pass: the leftmost match, and of several the longest. For
// a match with data, it has no control tokens.
type matcher struct {
	tokens  []addedToken // sorted by content
	first   [256]bool    // bytes that tokens begin with
	control bool         // there is a control token
}

// sort prepares the matcher. It refuses a token without normalised content, and two with the same.
func (m *matcher) sort() error {
	slices.SortFunc(m.tokens, func(a, b addedToken) int { return strings.Compare(a.Content, b.Content) })
	for i, t := range m.tokens {
		if t.Content == "" {
			return fmt.Errorf("%w: token %d is empty once normalized", ErrUnsupported, *t.ID)
		}
		if i > 0 && t.Content == m.tokens[i-1].Content {
			return fmt.Errorf("%w: two tokens are %.40q once normalized", ErrUnsupported, t.Content)
		}
		m.first[t.Content[0]] = true
		m.control = m.control || t.control
	}
	return nil
}

// split appends the segments of text to out. from is the index of the first byte without a
// segment. If any token strips white space, none begins or ends with it (checkAdded), so no
// match starts before from, and no run of white space is scanned twice.
func (m *matcher) split(p *pacer, out []segment, s source) []segment {
	text, from := s.text, 0
	for i := 0; i < len(text); {
		if uint(i)%block == 0 {
			p.spent(block * 3)
		}
		var t *addedToken
		if m.first[text[i]] {
			t = m.longest(s, i)
		}
		if t == nil {
			i++
			continue
		}
		p.spent(200)
		start, end := i, i+len(t.Content)
		i = end
		if t.SingleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
			continue
		}
		if t.LStrip {
			start = from + len(strings.TrimRightFunc(text[from:start], unicode.IsSpace))
		}
		if t.RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if from < start {
			out = append(out, segment{s.slice(from, start), -1})
		}
		out = append(out, segment{id: *t.ID})
		from = end
	}
	if from < len(text) {
		out = append(out, segment{s.slice(from, len(text)), -1})
	}
	return out
}

// longest returns the longest token at an offset of s, or nil. It narrows the sorted tokens
// byte by byte: after n bytes, left holds those that share n bytes with the text.
func (m *matcher) longest(s source, at int) *addedToken {
	text := s.text[at:]
	var found *addedToken
	left := m.tokens
	for n := 0; n < len(text) && len(left) > 0; n++ {
		lo := sort.Search(len(left), func(i int) bool { return left[i].Content[n] >= text[n] })
		hi := sort.Search(len(left), func(i int) bool { return left[i].Content[n] > text[n] })
		left = left[lo:hi]
		if len(left) > 0 && len(left[0].Content) == n+1 {
			if !left[0].control || !s.data(at, at+n+1) {
				found = &left[0]
			}
			left = left[1:]
		}
	}
	return found
}

func endsWithWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}

// isWord reports whether r matches \w of Rust's regex: a word character by UTS #18.
func isWord(r rune) bool {
	if unicode.In(r, unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc,
		unicode.Join_Control) {
		return true
	}
	// All numbers that Unicode added after version 15 are digits (Nd).
	return within(since15["L"], r) || within(since15["M"], r) || within(since15["N"], r)
}
