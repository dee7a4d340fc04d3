package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// newSplit reads Split with a regular expression, of which matches and the texts between them
// are pieces, or with a string.
func newSplit(raw json.RawMessage) (splitter, error) {
	var c struct {
		Type     string                          `json:"type"`
		Pattern  struct{ Regex, String *string } `json:"pattern"`
		Behavior string                          `json:"behavior"`
		Invert   bool                            `json:"invert"`
	}
	if err := decode(raw, &c); err != nil {
		return splitter{}, fmt.Errorf("Split: %w", err)
	}
	regex, text := c.Pattern.Regex, c.Pattern.String
	switch {
	case c.Invert:
		return splitter{}, fmt.Errorf("%w: Split: invert", ErrUnsupported)
	case regex == nil && (text == nil || *text == ""):
		return splitter{}, fmt.Errorf("%w: Split: no pattern", ErrInvalid)
	case regex == nil && (c.Behavior == "Isolated" || c.Behavior == "MergedWithPrevious" || c.Behavior == "Removed"):
		return splitter{cut: func(p *pacer, s string, emit func(string)) { cutAt(p, s, *text, c.Behavior, emit) }}, nil
	case c.Behavior != "Isolated":
		return splitter{}, fmt.Errorf("%w: Split: behavior %q", ErrUnsupported, c.Behavior)
	}
	p, err := newPattern(*regex)
	if err != nil {
		return splitter{}, fmt.Errorf("Split: %w", err)
	}
	return splitter{pattern: p}, nil
}

// cutAt cuts a text at each occurrence of a separator, which becomes a piece, the end of the piece
// before it, or nothing, by behavior.
func cutAt(p *pacer, text, separator, behavior string, emit func(string)) {
	for text != "" {
		p.spent(20)
		n := strings.Index(text, separator)
		if n < 0 {
			emit(text)
			return
		}
		end := n + len(separator)
		if behavior == "MergedWithPrevious" {
			emit(text[:end])
		} else {
			if n > 0 {
				emit(text[:n])
			}
			if behavior == "Isolated" {
				emit(separator)
			}
		}
		text = text[end:]
	}
}

// cutWords is the pre-tokenizer WhitespaceSplit: it drops white space.
func cutWords(p *pacer, text string, emit func(string)) {
	cutBy(p, text, func(rune) bool { return false }, emit)
}

// cutBERT is BertPreTokenizer: it drops white space, and each punctuation character is a piece.
func cutBERT(p *pacer, text string, emit func(string)) { cutBy(p, text, isPunctuation, emit) }

// cutBy drops white space. Each character that is alone is a piece.
func cutBy(p *pacer, text string, alone func(rune) bool, emit func(string)) {
	from, n := 0, uint(0)
	for i, r := range text {
		if n++; n%block == 0 {
			p.spent(block * 10)
		}
		isSpace := unicode.IsSpace(r)
		if !isSpace && !alone(r) {
			continue
		}
		if from < i {
			emit(text[from:i])
		}
		from = i + utf8.RuneLen(r)
		if !isSpace {
			emit(text[i:from])
		}
	}
	if from < len(text) {
		emit(text[from:])
	}
}

// newCutter reads a pre-tokenizer without options.
func newCutter(raw json.RawMessage, cut cutter) (splitter, error) {
	return splitter{cut: cut}, decode(raw, new(struct {
		Type string `json:"type"`
	}))
}
