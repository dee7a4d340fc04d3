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
	apply   func(*pacer, source) source
	shrinks int // largest ratio of the bytes of a text to those of its result
}

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
		apply := func(p *pacer, s source) source { return replace(p, s, from, to) }
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
	return rewrite{func(_ *pacer, s source) source {
		from, to := 0, len(s.text)
		if c.Left {
			from = to - len(strings.TrimLeftFunc(s.text, unicode.IsSpace))
		}
		if c.Right {
			to = from + len(strings.TrimRightFunc(s.text[from:], unicode.IsSpace))
		}
		return s.slice(from, to)
	}, 1}, decode(raw, &c)
}

// replace is strings.ReplaceAll with yields. from must not be empty.
func replace(p *pacer, s source, from, to string) source {
	next := strings.Index(s.text, from)
	if next < 0 {
		return s
	}
	var b sourceBuilder
	b.Grow(len(s.text) + len(s.text)/4)
	at := 0
	for ; next >= 0; next = strings.Index(s.text[at:], from) {
		b.add(s.slice(at, at+next))
		at += next
		b.mark(s.data(at, at+len(from)))
		b.WriteString(to)
		at += len(from)
		p.spent(20 + next/8)
	}
	b.add(s.slice(at, len(s.text)))
	return b.source()
}

func newPrepend(raw json.RawMessage) (rewrite, error) {
	var c struct {
		Type    string `json:"type"`
		Prepend string `json:"prepend"`
	}
	return rewrite{func(_ *pacer, s source) source {
		if s.text == "" {
			return s
		}
		var b sourceBuilder
		b.Grow(len(c.Prepend) + len(s.text))
		b.WriteString(c.Prepend)
		b.add(s)
		return b.source()
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
