package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// space is what SentencePiece writes for a space.
const space = "▁"

// byteContent is the content of the token that stands for a byte of a character
// that is no token.
func byteContent(b byte) string { return fmt.Sprintf("<0x%02X>", b) }

// byteOfContent is the inverse of byteContent, for any case of the digits.
func byteOfContent(content string) (b byte, ok bool) {
	digits, opened := strings.CutPrefix(content, "<0x")
	digits, closed := strings.CutSuffix(digits, ">")
	n, err := strconv.ParseUint(digits, 16, 8)
	return byte(n), opened && closed && len(digits) == 2 && err == nil
}

// startCharacters makes a symbol of each character that is a token, and one of
// each byte of the others.
func (e *encoder) startCharacters(piece string) {
	for from, r := range piece {
		e.pacer.did(40)
		character := piece[from : from+utf8.RuneLen(r)]
		if id, ok := e.m.ids[character]; ok {
			e.add(id)
			continue
		}
		for i := range len(character) {
			e.add(e.m.byteIDs[character[i]])
		}
	}
}

// wordStart returns space where no merge joins what ends otherwise to what
// begins with it: then a text's words can be encoded apart, with the same ids.
// Most vocabularies are so, and many words come again.
func wordStart(c *bpeConfig) string {
	if _, ok := c.Vocab[space]; !ok || c.IgnoreMerges {
		return "" // its bytes may merge with others; a piece is looked up whole
	}
	for _, m := range c.Merges {
		if strings.HasPrefix(m[1], space) && !strings.HasSuffix(m[0], space) {
			return ""
		}
	}
	return space
}

// word returns the bytes of the first word of a piece that is not empty.
func (m *bpe) word(p *pacer, piece string) int {
	if m.wordStart == "" {
		return len(piece)
	}
	rest := piece
	for n := uint(1); strings.HasPrefix(rest, m.wordStart); n++ {
		rest = rest[len(m.wordStart):]
		if n%block == 0 {
			p.did(block * 5)
		}
	}
	next := strings.Index(rest, m.wordStart)
	if next < 0 {
		return len(piece)
	}
	return len(piece) - len(rest) + next
}

// metaspace is the pre-tokenizer of that name: it writes spaces as its
// replacement, and puts one before a piece that has none.
type metaspace struct {
	replacement string
	scheme      string // where one is put: "always", "never", or "first", at the beginning of the whole text
	cuts        bool   // before each replacement
}

func (m *metaspace) split(p *pacer, piece string, first bool, emit func(string)) {
	piece = replace(p, piece, " ", m.replacement)
	if !strings.HasPrefix(piece, m.replacement) && (m.scheme == "always" || m.scheme == "first" && first) {
		piece = m.replacement + piece
	}
	for m.cuts {
		next := strings.Index(piece[min(1, len(piece)):], m.replacement)
		if next < 0 {
			break
		}
		emit(piece[:next+1])
		piece = piece[next+1:]
	}
	emit(piece)
}

// newMetaspaces builds null or Metaspace.
func newMetaspaces(raw json.RawMessage) (preTokenizer, error) {
	kind, err := typeOf(raw)
	switch {
	case err != nil || kind == "null":
		return nil, err
	case kind != "Metaspace":
		return nil, fmt.Errorf("%w, with byte_fallback", unsupported(kind))
	}
	split := true
	c := struct {
		Type          string `json:"type"`
		Replacement   string `json:"replacement"`
		PrependScheme string `json:"prepend_scheme"`
		Split         *bool  `json:"split"`
	}{PrependScheme: "always", Split: &split}
	if err := decode(raw, &c); err != nil {
		return nil, fmt.Errorf("Metaspace: %w", err)
	}
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return nil, fmt.Errorf("%w: Metaspace: replacement %.40q is not one character", ErrInvalid, c.Replacement)
	}
	if c.PrependScheme != "always" && c.PrependScheme != "first" && c.PrependScheme != "never" {
		return nil, fmt.Errorf("%w: Metaspace: prepend_scheme %.40q", ErrUnsupported, c.PrependScheme)
	}
	return preTokenizer{{metaspace: &metaspace{c.Replacement, c.PrependScheme, c.Split == nil || *c.Split}}}, nil
}
