package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// space replaces the space character in SentencePiece.
const space = "▁"

// byteContent returns the content of the token for a byte. Byte tokens encode characters that
// have no token of their own.
func byteContent(b byte) string { return fmt.Sprintf("<0x%02X>", b) }

// byteOfContent is the inverse of byteContent. The digits may be in either case.
func byteOfContent(content string) (b byte, ok bool) {
	digits, opened := strings.CutPrefix(content, "<0x")
	digits, closed := strings.CutSuffix(digits, ">")
	n, err := strconv.ParseUint(digits, 16, 8)
	return byte(n), opened && closed && len(digits) == 2 && err == nil
}

// startCharacters adds a symbol for each character that is a token, and one for each byte of
// other characters.
func (e *encoder) startCharacters(piece string) {
	for from, r := range piece {
		e.pacer.spent(40)
		character := piece[from : from+utf8.RuneLen(r)]
		if id, ok := e.bpe.ids[character]; ok {
			e.add(id)
			continue
		}
		for i := range len(character) {
			e.add(e.bpe.byteIDs[character[i]])
		}
	}
}

// wordStart returns space if no merge joins a token that begins with space to one that does
// not end with space. Then words can be encoded separately with the same ids, and repeated
// words only once. Most vocabularies allow it. Otherwise wordStart returns "".
func wordStart(c *bpeConfig) string {
	if _, ok := c.Vocab[space]; !ok || c.IgnoreMerges {
		return "" // bytes of the space may merge with others, or whole pieces are looked up
	}
	for _, m := range c.Merges {
		if strings.HasPrefix(m[1], space) && !strings.HasSuffix(m[0], space) {
			return ""
		}
	}
	return space
}

// word returns the bytes of the first word of a non-empty piece, or of the whole piece if it
// cannot be cut into words.
func (m *bpe) word(p *pacer, piece string) int {
	if m.wordStart == "" {
		return len(piece)
	}
	rest := piece
	for n := uint(1); strings.HasPrefix(rest, m.wordStart); n++ {
		rest = rest[len(m.wordStart):]
		if n%block == 0 {
			p.spent(block * 5)
		}
	}
	next := strings.Index(rest, m.wordStart)
	if next < 0 {
		return len(piece)
	}
	return len(piece) - len(rest) + next
}

// metaspace is the pre-tokenizer Metaspace. It replaces spaces, prepends a replacement
// according to scheme, and cuts before each replacement.
type metaspace struct {
	replacement string
	scheme      string // "always", "never", or "first" (only at the beginning of the whole text)
	cuts        bool   // false: leave pieces whole
}

func (m *metaspace) split(p *pacer, piece string, first bool, emit func(string)) {
	piece = replace(p, source{text: piece}, " ", m.replacement).text
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

// newCharacterPieces builds the pre-tokenizer of a model over characters.
func newCharacterPieces(list []json.RawMessage) (p preTokenizer, err error) {
	for i, raw := range list {
		kind, err := typeOf(raw)
		var s splitter
		switch {
		case err != nil:
		case kind == "Metaspace":
			s, err = newMetaspace(raw)
			if err == nil && i > 0 && s.metaspace.scheme == "first" {
				err = fmt.Errorf("%w: Metaspace with prepend_scheme first behind another member", ErrUnsupported)
			}
		case kind == "Split":
			s, err = newSplit(raw)
		case kind == "Digits":
			s, err = newDigits(raw)
		case kind == "WhitespaceSplit":
			s, err = newCutter(raw, cutWords)
		case kind == "BertPreTokenizer":
			s, err = newCutter(raw, cutBERT)
		default:
			err = fmt.Errorf("%w with byte_fallback, Unigram or WordPiece", unsupported(kind))
		}
		if err != nil {
			return nil, err
		}
		p = append(p, s)
	}
	return p, nil
}

func newMetaspace(raw json.RawMessage) (splitter, error) {
	c := struct {
		Type           string  `json:"type"`
		Replacement    string  `json:"replacement"`
		PrependScheme  string  `json:"prepend_scheme"`
		Split          *bool   `json:"split"`
		AddPrefixSpace *bool   `json:"add_prefix_space"` // of older files
		StrRep         *string `json:"str_rep"`          // the replacement again
	}{PrependScheme: "always"}
	if err := decode(raw, &c); err != nil {
		return splitter{}, fmt.Errorf("Metaspace: %w", err)
	}
	if c.AddPrefixSpace != nil && !*c.AddPrefixSpace && c.PrependScheme != "never" {
		return splitter{}, fmt.Errorf("%w: Metaspace: add_prefix_space is false, prepend_scheme %.40q",
			ErrInvalid, c.PrependScheme)
	}
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return splitter{}, fmt.Errorf("%w: Metaspace: replacement %.40q is not one character",
			ErrInvalid, c.Replacement)
	}
	if c.PrependScheme != "always" && c.PrependScheme != "first" && c.PrependScheme != "never" {
		return splitter{}, fmt.Errorf("%w: Metaspace: prepend_scheme %.40q", ErrUnsupported, c.PrependScheme)
	}
	return splitter{metaspace: &metaspace{c.Replacement, c.PrependScheme, c.Split == nil || *c.Split}}, nil
}
