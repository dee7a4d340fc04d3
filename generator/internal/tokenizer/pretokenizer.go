package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// preTokenizer cuts text into the pieces that the model encodes one by one.
type preTokenizer []step

// step is one cut: each piece of text goes through all steps in turn.
type step struct {
	prefixSpace bool       // put a space before a piece that has none
	metaspace   *metaspace // where it is one, it does all
	pattern     *pattern   // nil cuts nothing
}

// split returns the pieces of text in order, none of them empty. first says that
// the whole text begins with this one.
func (p preTokenizer) split(text string, first bool) ([]string, error) {
	pieces := []string{text}
	for _, s := range p {
		var next []string
		for _, piece := range pieces {
			if s.metaspace != nil {
				next = s.metaspace.split(next, piece, first)
				continue
			}
			if s.prefixSpace && !strings.HasPrefix(piece, " ") {
				piece = " " + piece
			}
			if s.pattern == nil {
				next = append(next, piece)
				continue
			}
			var err error
			if next, err = s.pattern.split(next, piece); err != nil {
				return nil, err
			}
		}
		pieces = next
	}
	return pieces, nil
}

// newPreTokenizer builds what the model's kind of BPE needs: over bytes
// ByteLevel, or a Sequence of Splits that ends with ByteLevel; over characters
// Metaspace or null.
func newPreTokenizer(raw json.RawMessage, model *bpeConfig) (preTokenizer, error) {
	if model.ByteFallback {
		return newMetaspaces(raw)
	}
	list, err := members(raw, "pretokenizers")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w, without byte_fallback", unsupported("null"))
	}
	var p preTokenizer
	for i, m := range list {
		s, err := newStep(m, i == len(list)-1)
		if err != nil {
			return nil, err
		}
		p = append(p, s)
	}
	return p, nil
}

// newStep builds one member. ByteLevel turns bytes into its alphabet, which
// this package leaves to the model, so nothing may come after it.
func newStep(raw json.RawMessage, last bool) (step, error) {
	kind, err := typeOf(raw)
	switch {
	case err != nil:
		return step{}, err
	case kind == "ByteLevel" && last:
		return newByteLevel(raw)
	case kind == "Split" && !last:
		return newSplit(raw)
	case kind == "ByteLevel" || kind == "Split":
		return step{}, fmt.Errorf("%w: ByteLevel must come last, and only there", ErrUnsupported)
	}
	return step{}, unsupported(kind)
}

func newByteLevel(raw json.RawMessage) (step, error) {
	var c byteLevelConfig
	if err := decode(raw, &c); err != nil {
		return step{}, fmt.Errorf("ByteLevel: %w", err)
	}
	s := step{prefixSpace: c.AddPrefixSpace}
	if c.UseRegex != nil && !*c.UseRegex {
		return s, nil
	}
	var err error
	s.pattern, err = newPattern(gpt2Pattern)
	return s, err
}

func newSplit(raw json.RawMessage) (step, error) {
	var c struct {
		Type     string `json:"type"`
		Pattern  struct{ Regex *string }
		Behavior string `json:"behavior"`
		Invert   bool   `json:"invert"`
	}
	if err := decode(raw, &c); err != nil {
		return step{}, fmt.Errorf("Split: %w", err)
	}
	switch {
	case c.Behavior != "Isolated":
		return step{}, fmt.Errorf("%w: Split: behavior %q", ErrUnsupported, c.Behavior)
	case c.Invert:
		return step{}, fmt.Errorf("%w: Split: invert", ErrUnsupported)
	case c.Pattern.Regex == nil:
		return step{}, fmt.Errorf("%w: Split: no pattern", ErrInvalid)
	}
	p, err := newPattern(*c.Pattern.Regex)
	if err != nil {
		return step{}, fmt.Errorf("Split: %w", err)
	}
	return step{pattern: p}, nil
}
