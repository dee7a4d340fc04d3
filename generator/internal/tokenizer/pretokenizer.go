package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// preTokenizer cuts text into pieces, which the model encodes separately.
type preTokenizer []splitter

// splitter is one member of a pre-tokenizer. It cuts each piece of the one before it.
type splitter struct {
	prefixSpace bool       // prepend a space to a piece that does not begin with one
	metaspace   *metaspace // if set, the other fields are unused
	cut         cutter     // if set, the other fields are unused
	pattern     *pattern   // nil: do not cut
}

// cutter calls emit with the pieces of a non-empty text in order; none is empty.
type cutter func(pace *pacer, text string, emit func(string))

// split calls emit with the pieces of text in order; none is empty. first reports whether text
// is the beginning of the whole text. There is no list of pieces, since it would take more
// memory than the text.
func (p preTokenizer) split(pace *pacer, text string, first bool, emit func(string)) error {
	switch len(p) {
	case 0:
		emit(text)
		return nil
	case 1:
		return p[0].split(pace, text, first, emit)
	}
	return p.splitTwice(pace, text, first, emit)
}

// splitTwice is split with several members: it cuts each piece of the first one by the others.
func (p preTokenizer) splitTwice(pace *pacer, text string, first bool, emit func(string)) (err error) {
	failed := p[0].split(pace, text, first, func(piece string) {
		err = cmp.Or(err, p[1:].split(pace, piece, first, emit))
		first = false
	})
	return cmp.Or(failed, err)
}

// split calls emit with the pieces that s cuts text into.
func (s splitter) split(pace *pacer, text string, first bool, emit func(string)) error {
	if s.metaspace != nil {
		s.metaspace.split(pace, text, first, emit)
		return nil
	}
	if s.cut != nil {
		s.cut(pace, text, emit)
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

// newPreTokenizer accepts ByteLevel, or a Sequence of Split and Digits that ends with ByteLevel, for
// BPE over bytes; and null, Metaspace, Split, Digits, WhitespaceSplit, BertPreTokenizer, or a
// Sequence of these for models over characters.
func newPreTokenizer(raw json.RawMessage, characters bool) (preTokenizer, error) {
	list, err := members(raw, "pretokenizers")
	if err != nil {
		return nil, err
	}
	if characters {
		return newCharacterPieces(list)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w without byte_fallback", unsupported("null"))
	}
	var p preTokenizer
	for i, m := range list {
		s, err := newSplitter(m, i == len(list)-1)
		if err != nil {
			return nil, err
		}
		p = append(p, s)
	}
	return p, nil
}

// newSplitter builds one member. ByteLevel also maps bytes to its alphabet, which this package
// leaves to the model, so ByteLevel must be the last member.
func newSplitter(raw json.RawMessage, last bool) (splitter, error) {
	kind, err := typeOf(raw)
	switch {
	case err != nil:
		return splitter{}, err
	case kind == "ByteLevel" && last:
		return newByteLevel(raw)
	case kind == "Split" && !last:
		return newSplit(raw)
	case kind == "Digits" && !last:
		return newDigits(raw)
	case kind == "ByteLevel" || kind == "Split" || kind == "Digits":
		return splitter{}, fmt.Errorf("%w: ByteLevel must be the last member and no other", ErrUnsupported)
	}
	return splitter{}, unsupported(kind)
}

func newByteLevel(raw json.RawMessage) (splitter, error) {
	var c byteLevelConfig
	if err := decode(raw, &c); err != nil {
		return splitter{}, fmt.Errorf("ByteLevel: %w", err)
	}
	s := splitter{prefixSpace: c.AddPrefixSpace}
	if c.UseRegex != nil && !*c.UseRegex {
		return s, nil
	}
	var err error
	s.pattern, err = newPattern(gpt2Pattern)
	return s, err
}
