package tokenizer

import (
	"cmp"
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

// split calls emit with the pieces of text in order, none of them empty. first says
// that the whole text begins with this one. A list of the pieces would take more memory
// than the text.
func (p preTokenizer) split(pace *pacer, text string, first bool, emit func(string)) (err error) {
	if len(p) == 0 {
		emit(text)
		return nil
	}
	next := emit
	if len(p) > 1 {
		next = func(piece string) { err = cmp.Or(err, p[1:].split(pace, piece, first, emit)) }
	}
	failed := p[0].split(pace, text, first, next)
	return cmp.Or(failed, err)
}

// split is one cut of text.
func (s step) split(pace *pacer, text string, first bool, emit func(string)) error {
	if s.metaspace != nil {
		s.metaspace.split(pace, text, first, emit)
		return nil
	}
	if s.prefixSpace && !strings.HasPrefix(text, " ") {
		text = " " + text
	}
	if s.pattern == nil {
		emit(text)
		return nil
	}
	return s.pattern.split(pace, text, emit)
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
