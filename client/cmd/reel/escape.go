package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// escapedInAnswer reports whether r is escaped in generated text: C0 but newline
// and tab, DEL and C1, on which a terminal acts; and bidi embeddings, overrides
// and isolates, which show what follows them in another order than it is in. What
// scripts and emoji need passes: joiners (ZWJ, ZWNJ), the marks U+200E, U+200F and
// U+061C, whose effect ends beside them, combining characters, variation
// selectors, and the tags of flags.
func escapedInAnswer(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' ||
		r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// escapedInLabel reports whether r is escaped in labels: codes, names, messages,
// hints and all else that is not generated. A person compares labels and acts on
// them, so nothing in them may be invisible or change how the rest looks. Beyond
// escapedInAnswer these are formats (Cf: joiners, marks, tags, U+FEFF), separators
// of lines and paragraphs, fillers, variation selectors, and private or unassigned
// code points.
func escapedInLabel(r rune) bool {
	if r == '\n' || r == '\t' {
		return false
	}
	return !unicode.IsGraphic(r) ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// escapedInLine is escapedInLabel for labels of one line, where a newline would
// forge another line, and a tab another column.
func escapedInLine(r rune) bool { return r == '\n' || r == '\t' || escapedInLabel(r) }

// oneLine returns text as a label of one line.
func oneLine(text string) string { return escape(text, escapedInLine) }

// escape returns text with the characters for which is is true as Go or JSON writes
// them. A JSON string stays one and keeps its meaning: its encoder has escaped C0
// already, and characters above are written in JSON's form. Bytes that are not
// UTF-8 are escaped as well: some terminals take a C1 of one byte.
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

// escaped is how r is written.
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
