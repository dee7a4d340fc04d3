package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// normalizer rewrites text before it is cut into pieces.
type normalizer []rewrite

// rewrite is one member of a normalizer.
type rewrite struct {
	apply   func(*pacer, string) string
	shrinks int // largest ratio of the bytes of a text to those of its result
}

func (n normalizer) normalize(p *pacer, text string) string {
	for _, member := range n {
		text = member.apply(p, text)
	}
	return text
}

// shrinks returns the largest ratio of the bytes of a text to those of its normalised form.
func (n normalizer) shrinks() int {
	times := 1
	for _, member := range n {
		times *= member.shrinks
	}
	return times
}

// newNormalizer accepts null, NFC, NFKC, Lowercase, Strip, Prepend, Replace, or a Sequence of these.
func newNormalizer(raw json.RawMessage) (normalizer, error) {
	list, err := members(raw, "normalizers")
	if err != nil {
		return nil, err
	}
	var n normalizer
	for _, m := range list {
		member, err := newRewrite(m)
		if err != nil {
			return nil, err
		}
		n = append(n, member)
	}
	return n, nil
}

func newRewrite(raw json.RawMessage) (rewrite, error) {
	kind, err := typeOf(raw)
	if err != nil {
		return rewrite{}, err
	}
	switch kind {
	case "NFC":
		// The largest ratio is 3: three jamo of three bytes each compose to one syllable of three.
		return rewrite{nfc, 3}, decode(raw, new(struct {
			Type string `json:"type"`
		}))
	case "NFKC":
		// The largest ratio is 4: a mathematical letter of four bytes becomes an ASCII letter.
		return rewrite{nfkc, 4}, decode(raw, new(struct {
			Type string `json:"type"`
		}))
	case "Lowercase":
		// The largest ratio is 3: the Kelvin sign of three bytes becomes k.
		return rewrite{lowercase, 3}, decode(raw, new(struct {
			Type string `json:"type"`
		}))
	case "Strip":
		return newStrip(raw)
	case "Prepend":
		return newPrepend(raw)
	case "Replace":
		from, to, err := readReplace(raw)
		if err == nil && to == "" {
			err = fmt.Errorf("%w: Replace with nothing", ErrUnsupported)
		}
		if err != nil {
			return rewrite{}, err
		}
		apply := func(p *pacer, text string) string { return replace(p, text, from, to) }
		return rewrite{apply, max(1, (len(from)+len(to)-1)/len(to))}, nil
	}
	return rewrite{}, unsupported(kind)
}

// newStrip reads Strip, which removes white space at the ends of a text.
func newStrip(raw json.RawMessage) (rewrite, error) {
	var c struct {
		Type  string `json:"type"`
		Left  bool   `json:"strip_left"`
		Right bool   `json:"strip_right"`
	}
	return rewrite{func(_ *pacer, text string) string {
		if c.Left {
			text = strings.TrimLeftFunc(text, unicode.IsSpace)
		}
		if c.Right {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		}
		return text
	}, 1}, decode(raw, &c)
}

// replace is strings.ReplaceAll with yields. from must not be empty.
func replace(p *pacer, text, from, to string) string {
	next := strings.Index(text, from)
	if next < 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + len(text)/4)
	for ; next >= 0; next = strings.Index(text, from) {
		b.WriteString(text[:next])
		b.WriteString(to)
		text = text[next+len(from):]
		p.spent(20 + next/8)
	}
	b.WriteString(text)
	return b.String()
}

func newPrepend(raw json.RawMessage) (rewrite, error) {
	var c struct {
		Type    string `json:"type"`
		Prepend string `json:"prepend"`
	}
	return rewrite{func(_ *pacer, text string) string {
		if text == "" {
			return ""
		}
		return c.Prepend + text
	}, 1}, decode(raw, &c)
}

// readReplace reads Replace, which can be a normalizer or a decoder.
func readReplace(raw json.RawMessage) (from, to string, err error) {
	var c struct {
		Type    string `json:"type"`
		Pattern struct{ String string }
		Content string `json:"content"`
	}
	if err := decode(raw, &c); err != nil {
		return "", "", fmt.Errorf("Replace: %w", err)
	}
	if c.Pattern.String == "" {
		return "", "", fmt.Errorf("%w: Replace: no pattern", ErrInvalid)
	}
	return c.Pattern.String, c.Content, nil
}
