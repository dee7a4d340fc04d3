package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// newReplace reads the normalizer Replace. Its pattern is a string, or a regular expression that has
// a finder.
func newReplace(raw json.RawMessage) (rewrite, error) {
	c, err := readReplace(raw)
	switch {
	case err != nil:
		return rewrite{}, err
	case c.Content == "":
		return rewrite{}, fmt.Errorf("%w: Replace with nothing", ErrUnsupported)
	case c.Pattern.Regex != nil:
		return newReplaceFound(*c.Pattern.Regex, c.Content)
	}
	from, to := *c.Pattern.String, c.Content
	apply := func(p *pacer, s source) source { return replace(p, s, from, to) }
	return rewrite{apply, ceil(len(from), len(to)), ceil(len(to), len(from))}, nil
}

// newReplaceFound refuses patterns without a finder, since others may take quadratic time.
func newReplaceFound(pattern, to string) (rewrite, error) {
	if _, err := newPattern(pattern); err != nil {
		return rewrite{}, fmt.Errorf("Replace: %w", err)
	}
	find := newFinder(pattern)
	if find == nil {
		return rewrite{}, fmt.Errorf("%w: Replace: pattern %.200q", ErrUnsupported, pattern)
	}
	return rewrite{func(p *pacer, s source) source {
		var b sourceBuilder
		b.Grow(len(s.text))
		for at := 0; at < len(s.text); {
			start, end := find(p, s.text[at:])
			start, end = at+start, at+end
			b.add(s, at, start)
			if start < end {
				b.mark(s.data(start, end))
				b.WriteString(to)
			}
			at = end
		}
		return b.source()
	}, utf8.UTFMax, len(to)}, nil
}

// ceil returns a/b, rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

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
		b.add(s, at, at+next)
		at += next
		b.mark(s.data(at, at+len(from)))
		b.WriteString(to)
		at += len(from)
		p.spent(20 + next/8)
	}
	b.add(s, at, len(s.text))
	return b.source()
}

// replaceConfig is Replace, which can be a normalizer or a decoder.
type replaceConfig struct {
	Type    string                          `json:"type"`
	Pattern struct{ String, Regex *string } `json:"pattern"`
	Content string                          `json:"content"`
}

func readReplace(raw json.RawMessage) (c replaceConfig, err error) {
	if err := decode(raw, &c); err != nil {
		return c, fmt.Errorf("Replace: %w", err)
	}
	if c.Pattern.Regex == nil && (c.Pattern.String == nil || *c.Pattern.String == "") {
		return c, fmt.Errorf("%w: Replace: no pattern", ErrInvalid)
	}
	return c, nil
}
