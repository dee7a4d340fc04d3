package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// nameLength returns the length of the name that s begins with, or 0.
func nameLength(s string) int {
	for i, r := range s {
		if r == '_' || unicode.IsLetter(r) || i > 0 && (unicode.IsDigit(r) || unicode.In(r, unicode.Mn, unicode.Mc)) {
			continue
		}
		return i
	}
	return len(s)
}

// stringLength returns the length of the string literal that s begins with, with its quotes, or
// 0.
func stringLength(s string) int {
	if s[0] != '\'' && s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return 0
}

// digitsLength returns the length of a sequence of digits of s with single underscores between
// them, or 0.
func digitsLength(s, digits string) int {
	n := 0
	for n < len(s) {
		i := n
		if i > 0 && s[i] == '_' {
			i++
		}
		if i == len(s) || strings.IndexByte(digits, s[i]) < 0 {
			break
		}
		n = i + 1
	}
	return n
}

const decimal = "0123456789"

// integerLength returns the length of the integer literal that s begins with, or 0.
func integerLength(s string) int {
	if len(s) > 2 && s[0] == '0' {
		rest := strings.TrimPrefix(s[2:], "_")
		for prefix, digits := range map[byte]string{'b': "01", 'o': "01234567", 'x': "0123456789abcdefABCDEF"} {
			if n := digitsLength(rest, digits); s[1]|0x20 == prefix && n > 0 {
				return len(s) - len(rest) + n
			}
		}
	}
	if s[0] == '0' {
		return digitsLength(s, "0")
	}
	return digitsLength(s, decimal)
}

// floatLength returns the length of the float literal that s begins with, or 0. A literal
// cannot follow a dot.
func floatLength(s string, afterDot bool) int {
	n := digitsLength(s, decimal)
	if n == 0 || afterDot {
		return 0
	}
	end := n
	if strings.HasPrefix(s[end:], ".") {
		if f := digitsLength(s[end+1:], decimal); f > 0 {
			end += 1 + f
		}
	}
	if end < len(s) && s[end]|0x20 == 'e' {
		e := end + 1
		e += len(signOf(s[e:]))
		if f := digitsLength(s[e:], decimal); f > 0 {
			end = e + f
		}
	}
	if end == n {
		return 0
	}
	return end
}

// number returns the value of a number literal.
func number(t token) value {
	text := strings.ReplaceAll(t.text, "_", "")
	if t.kind == tokenFloat {
		f, _ := strconv.ParseFloat(text, 64) // out of range is infinite, as in Python
		return f
	}
	i, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		failAt(t.line, "the integer %.40s has more than 64 bits", text)
	}
	return i
}

// simpleEscapes are the escape sequences of one character and their meaning.
const simpleEscapes, simpleMeanings = "\n\\'\"abfnrtv", "\x00\\'\"\a\b\f\n\r\t\v"

// unescape returns the value of a string literal, as Python's codec unicode-escape does.
func unescape(s string, line int) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i+1:]
		s = s[unescapeOne(&b, s, line):]
	}
}

// unescapeOne writes the character whose escape sequence s begins with, after the backslash. It
// returns the length of the sequence.
func unescapeOne(b *strings.Builder, s string, line int) int {
	c := s[0]
	if i := strings.IndexByte(simpleEscapes, c); i >= 0 {
		if c != '\n' {
			b.WriteByte(simpleMeanings[i])
		}
		return 1
	}
	if c >= '0' && c <= '7' {
		n := 1
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		r, _ := strconv.ParseUint(s[:n], 8, 32)
		b.WriteRune(rune(r))
		return n
	}
	if n, ok := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; ok {
		r, err := strconv.ParseUint(s[1:min(1+n, len(s))], 16, 32)
		if err != nil || len(s) < 1+n || !utf8.ValidRune(rune(r)) {
			failAt(line, "the escape sequence \\%s is no character", s[:min(1+n, len(s))])
		}
		b.WriteRune(rune(r))
		return 1 + n
	}
	if c == 'N' {
		failAt(line, "character names, as in \\N{…}, are not supported")
	}
	return unescapeOther(b, s)
}

// unescapeOther writes a sequence that is none. Jinja2 has replaced a character beyond ASCII by
// its escape sequence before, so the backslash in front of it escapes the other backslash.
func unescapeOther(b *strings.Builder, s string) int {
	r, n := utf8.DecodeRuneInString(s)
	b.WriteByte('\\')
	switch {
	case r < 0x80:
		b.WriteRune(r)
	case r < 0x100:
		fmt.Fprintf(b, "x%02x", r)
	case r < 0x10000:
		fmt.Fprintf(b, "u%04x", r)
	default:
		fmt.Fprintf(b, "U%08x", r)
	}
	return n
}
