package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// normalizer rewrites text before it is cut into pieces.
type normalizer []rewrite

// rewrite is one member of a normalizer.
type rewrite struct {
	apply   func(*pacer, source) source
	shrinks int // largest ratio of the bytes of a text to those of its result, if no characters are removed
	grows   int // largest ratio of the bytes of a result to those of its text
}

// maxGrowth bounds the memory that a normalizer takes, as a ratio to the bytes of a text.
const maxGrowth = 1 << 12

func (n normalizer) normalize(p *pacer, s source) source {
	for _, member := range n {
		s = member.apply(p, s)
	}
	return s
}

// normalizeString is normalize for a trusted text.
func (n normalizer) normalizeString(text string) string {
	return n.normalize(newPacer(), source{text: text}).text
}

// shrinks returns the largest ratio of the bytes of a text to those of its normalised form, if no
// characters are removed.
func (n normalizer) shrinks() int {
	times := 1
	for _, member := range n {
		times *= member.shrinks
	}
	return times
}

// newNormalizer accepts null, the members of plainRewrites, BertNormalizer, Precompiled, Strip,
// Prepend, Replace, or a Sequence of these.
func newNormalizer(raw json.RawMessage) (normalizer, error) {
	list, err := members(raw, "normalizers")
	if err != nil {
		return nil, err
	}
	var n normalizer
	grows := 1
	for _, m := range list {
		member, err := newRewrite(m)
		if err != nil {
			return nil, err
		}
		n = append(n, member)
		if grows *= member.grows; grows > maxGrowth {
			return nil, fmt.Errorf("%w: a text can grow %d times, at most %d are allowed",
				ErrUnsupported, grows, maxGrowth)
		}
	}
	return n, nil
}

func newRewrite(raw json.RawMessage) (rewrite, error) {
	kind, err := typeOf(raw)
	if err != nil {
		return rewrite{}, err
	}
	if plain, ok := plainRewrites[kind]; ok {
		return plain, decode(raw, new(struct {
			Type string `json:"type"`
		}))
	}
	switch kind {
	case "BertNormalizer":
		return newBERTNormalizer(raw)
	case "Precompiled":
		return newPrecompiled(raw)
	case "Strip":
		return newStrip(raw)
	case "Prepend":
		return newPrepend(raw)
	case "Replace":
		return newReplace(raw)
	}
	return rewrite{}, unsupported(kind)
}

// plainRewrites are the normalizers without options.
var plainRewrites = map[string]rewrite{
	"NFC":          {nfc, 3, 3},   // three jamo of three bytes each compose to one syllable of three
	"NFD":          {nfd, 3, 3},   // the Kelvin sign of three bytes becomes K
	"NFKC":         {nfkc, 4, 11}, // a mathematical letter of four bytes becomes an ASCII letter,
	"NFKD":         {nfkd, 4, 11}, // a ligature of three bytes becomes 33
	"Lowercase":    {lowercase, 3, 2},
	"StripAccents": {stripAccents, 1, 1},
}

// eachRune returns the text that write makes of each character.
func eachRune(p *pacer, s source, write func(b *sourceBuilder, r rune)) source {
	var b sourceBuilder
	b.Grow(len(s.text))
	n := uint(0)
	for i, r := range s.text {
		if n++; n%block == 0 {
			p.spent(block * 10)
		}
		b.mark(s.data(i, i+utf8.RuneLen(r)))
		write(&b, r)
	}
	return b.source()
}

// newStrip reads Strip, which removes white space at the ends of a text.
func newStrip(raw json.RawMessage) (rewrite, error) {
	var c struct {
		Type  string `json:"type"`
		Left  bool   `json:"strip_left"`
		Right bool   `json:"strip_right"`
	}
	return rewrite{func(_ *pacer, s source) source {
		from, to := 0, len(s.text)
		if c.Left {
			from = to - len(strings.TrimLeftFunc(s.text, unicode.IsSpace))
		}
		if c.Right {
			to = from + len(strings.TrimRightFunc(s.text[from:], unicode.IsSpace))
		}
		return s.slice(from, to)
	}, 1, 1}, decode(raw, &c)
}

func newPrepend(raw json.RawMessage) (rewrite, error) {
	var c struct {
		Type    string `json:"type"`
		Prepend string `json:"prepend"`
	}
	err := decode(raw, &c)
	return rewrite{func(_ *pacer, s source) source {
		if s.text == "" {
			return s
		}
		var b sourceBuilder
		b.Grow(len(c.Prepend) + len(s.text))
		b.WriteString(c.Prepend)
		b.add(s, 0, len(s.text))
		return b.source()
	}, 1, 1 + len(c.Prepend)}, err
}
