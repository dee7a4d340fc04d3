package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// escapedInAnswer reports whether r is escaped in generated text. Escaped are the
// characters on which a terminal acts (C0 except newline and tab, DEL, and C1) and bidi
// embeddings, overrides and isolates, which display the following text in another
// order. Characters that scripts and emoji need pass: joiners (ZWJ, ZWNJ), the marks
// U+200E, U+200F and U+061C, which affect only their neighbours, combining characters,
// variation selectors, and the tags of flags.
func escapedInAnswer(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' ||
		r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// escapedInLabel reports whether r is escaped in a label: a code, name, message, hint or
// other text that is not generated. People compare labels and act on them, so no
// character may be invisible or change how the rest looks. Beyond escapedInAnswer these
// are format characters (Cf: joiners, marks, tags, U+FEFF), line and paragraph
// separators, fillers, variation selectors, and private or unassigned code points.
func escapedInLabel(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return !unicode.IsGraphic(r) ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// escapedInLine is escapedInLabel for labels of one line. It also escapes newlines,
// which would forge another line, and tabs, which would forge another column.
func escapedInLine(r rune) bool { return r == '\n' || r == '\t' || escapedInLabel(r) }

// oneLine returns text escaped as a label of one line.
func oneLine(text string) string { return escape(text, escapedInLine) }

// escape returns text with every character for which is is true written as an escape of
// Go or JSON. A JSON string keeps its meaning: its encoder has already escaped C0, and
// other characters get JSON's escapes. Bytes that are not UTF-8 are escaped too, because
// some terminals act on a C1 of one byte.
func escape(text string, is func(rune) bool) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, is) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case is(r):
			b.WriteString(escaped(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escaped returns the escape of r.
func escaped(r rune) string {
	switch {
	case r == '\r':
		return `\r`
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r < 0x20:
		return fmt.Sprintf(`\x%02x`, r)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
