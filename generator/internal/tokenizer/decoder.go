package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// Decoder turns a stream of ids into text. The results of Push and Flush, joined, equal
// decode(ids, skip_special_tokens=True) of tokenizers, with one exception: in invalid UTF-8
// each maximal prefix of a character becomes one U+FFFD, with every model. A byte-fallback
// decoder of tokenizers also replaces valid characters beside it, and cannot stream. Only one
// goroutine may use a Decoder at a time.
type Decoder struct {
	t      *Tokenizer
	first  bool   // no token with text has come, and the first one may have another text
	strips int    // spaces that may still be dropped at the beginning of the text
	held   []byte // an incomplete UTF-8 sequence, at most 3 bytes
}

// NewDecoder returns a Decoder of the text that follows the tokens in after. If those have no
// text, the Decoder is at the beginning of a text, where the decoders of some models drop a
// space.
func (t *Tokenizer) NewDecoder(after []int32) *Decoder {
	d := &Decoder{t: t, strips: t.decoder.strips}
	d.first = t.decoder.first != nil && !slices.ContainsFunc(after, t.shown)
	for i := 0; i < len(after) && d.strips > 0; i++ {
		d.dropSpaces(t.text(after[i]))
	}
	return d
}

// shown reports whether id is a token that decoded text does not omit.
func (t *Tokenizer) shown(id int32) bool {
	return id >= 0 && int(id) < len(t.tokens) && t.tokens[id].used && !t.tokens[id].special
}

// text returns the bytes of id in the middle of a text. Special tokens and ids without a
// token have none.
func (t *Tokenizer) text(id int32) string {
	if id < 0 || int(id) >= len(t.tokens) || t.tokens[id].special {
		return ""
	}
	return t.tokens[id].bytes
}

// Push adds a token and returns the text that is now complete: valid UTF-8, possibly empty.
// It holds back only an incomplete UTF-8 sequence at the end.
func (d *Decoder) Push(id int32) string {
	s := d.t.text(id)
	if d.first && d.t.shown(id) {
		if text, ok := d.t.firsts[id]; ok {
			s = text
		}
		d.first = false
	}
	s = d.dropSpaces(s)
	if len(d.held) == 0 && utf8.ValidString(s) {
		return s
	}
	text, rest := lossy(append(d.held, s...))
	d.held = append([]byte(nil), rest...)
	return text
}

// dropSpaces removes the spaces that must be dropped at the beginning of the text.
func (d *Decoder) dropSpaces(s string) string {
	for d.strips > 0 && s != "" {
		if s[0] != ' ' {
			d.strips = 0
			break
		}
		s = s[1:]
		d.strips--
	}
	return s
}

// Held returns the number of bytes held back, at most 3.
func (d *Decoder) Held() int { return len(d.held) }

// Flush ends the text. It returns U+FFFD if bytes were held back, else "".
func (d *Decoder) Flush() string {
	s := flush(d.held)
	d.held = nil
	return s
}

// flush returns the text of an incomplete sequence at the end.
func flush(rest []byte) string {
	if len(rest) == 0 {
		return ""
	}
	return string(utf8.RuneError)
}

// lossy decodes b up to an incomplete sequence at the end, which it returns as rest. Each
// maximal subpart of an ill-formed sequence becomes one U+FFFD, as in Rust's from_utf8_lossy
// and section 3.9 of the Unicode standard. Go's own functions replace each byte by one.
func lossy(b []byte) (text string, rest []byte) {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		n, want := sequence(b)
		switch {
		case n == want:
			out = append(out, b[:n]...)
		case n == len(b) && want > 0:
			return string(out), b
		default:
			out = utf8.AppendRune(out, utf8.RuneError)
		}
		b = b[n:]
	}
	return string(out), nil
}

// sequence returns in n the length of the longest prefix of b that is a prefix of a UTF-8
// sequence, and in want the length of the whole sequence. If no sequence begins with b[0] it
// returns 1, 0.
func sequence(b []byte) (n, want int) {
	lo, hi := byte(0x80), byte(0xBF) // bounds of the second byte
	switch c := b[0]; {
	case c < 0x80:
		return 1, 1
	case c < 0xC2 || c > 0xF4:
		return 1, 0
	case c < 0xE0:
		want = 2
	case c < 0xF0:
		want = 3
	default:
		want = 4
	}
	switch b[0] {
	case 0xE0:
		lo = 0xA0 // below are overlong forms
	case 0xED:
		hi = 0x9F // above are surrogates
	case 0xF0:
		lo = 0x90
	case 0xF4:
		hi = 0x8F // above is past U+10FFFF
	}
	for n = 1; n < want && n < len(b) && lo <= b[n] && b[n] <= hi; n++ {
		lo, hi = 0x80, 0xBF
	}
	return n, want
}
