package tokenizer

import "unicode/utf8"

// charOf is GPT-2's alphabet: a printable character for each byte. Printable Latin-1
// characters map to themselves, the other 68 bytes to U+0100 and up. byteOf is the inverse.
var charOf, byteOf = alphabet()

func alphabet() (chars [256]rune, bytes map[rune]byte) {
	bytes = make(map[rune]byte, 256)
	next := rune(0x100)
	for b := range rune(256) {
		chars[b] = b
		if b < '!' || b > '~' && b < '¡' || b == '\u00AD' {
			chars[b] = next
			next++
		}
		bytes[chars[b]] = byte(b)
	}
	return chars, bytes
}

// rawBytes returns the bytes that the content of a token spells. If a character is outside the
// alphabet, ok is false and raw is the content itself.
func rawBytes(content string) (raw string, ok bool) {
	b := make([]byte, 0, len(content))
	for _, r := range content {
		c, known := byteOf[r]
		if !known {
			return content, false
		}
		b = append(b, c)
	}
	return string(b), true
}

// inUTF8 reports whether b can occur in valid UTF-8.
func inUTF8(b byte) bool {
	return b < utf8.RuneSelf || b < 0xC0 || b > 0xC1 && b < 0xF5
}
