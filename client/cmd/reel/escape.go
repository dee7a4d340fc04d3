package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
)

// escape shows the control characters of text, other than newline and tab, as
// Go writes them. On a terminal they would be commands: a model's text must not
// move the cursor, set the title or answer a query in the user's name.
func escape(text string) string {
	if strings.IndexFunc(text, isCommand) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !isCommand(r):
			b.WriteRune(r)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x20:
			fmt.Fprintf(&b, `\x%02x`, r)
		default: // JSON leaves these as they are, and reads this form.
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// isCommand reports whether a terminal may act on r: C0 but newline and tab,
// DEL, and C1.
func isCommand(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t'
}

// stdout returns where a command prints: standard output, with control
// characters escaped where it is a terminal.
func stdout() (w io.Writer, terminal bool) {
	if isTerminal(os.Stdout) {
		return escaper{os.Stdout}, true
	}
	return os.Stdout, false
}

// escaper escapes what is written to it, whole characters at a time.
type escaper struct{ w io.Writer }

// Write writes p escaped.
func (e escaper) Write(p []byte) (int, error) {
	if _, err := io.WriteString(e.w, escape(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
