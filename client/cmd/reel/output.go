package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// output is standard output or standard error. Everything that reel prints goes through
// an output, so that no string from a generator, a file or another program reaches a
// terminal unescaped. A test checks that no other file names os.Stdout or os.Stderr. The
// line editor of chat is the exception: it writes the line that the person types.
type output struct {
	file     *os.File
	terminal bool
	escapes  bool   // false if the bytes must stay exact
	tail     []byte // incomplete character at the end of the last Write
}

// stdout returns standard output. It is exact unless it is a terminal.
func stdout() *output {
	terminal := isTerminal(os.Stdout)
	return &output{file: os.Stdout, terminal: terminal, escapes: terminal}
}

// stderr returns standard error. It always escapes, since logs are read on terminals too.
func stderr() *output {
	return &output{file: os.Stderr, terminal: isTerminal(os.Stderr), escapes: true}
}

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// draws reports whether o is a terminal on which control sequences work.
func (o *output) draws() bool { return o.terminal && os.Getenv("TERM") != "dumb" }

// fd returns the descriptor, for inspection only: writes to it are not escaped.
func (o *output) fd() int { return int(o.file.Fd()) }

// Write writes text as a label of any number of lines. A character may be split between
// two calls.
func (o *output) Write(text []byte) (int, error) {
	if !o.escapes {
		return o.file.Write(text)
	}
	all := append(o.tail, text...)
	whole := wholeCharacters(all)
	o.tail = append([]byte(nil), all[whole:]...)
	if _, err := io.WriteString(o.file, escape(string(all[:whole]), escapedInLabel)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// flush writes the remaining bytes of an incomplete character, escaped.
func (o *output) flush() error {
	_, err := io.WriteString(o.file, escape(string(o.tail), escapedInLabel))
	o.tail = nil
	return err
}

// wholeCharacters returns the length of text without an incomplete character at its end.
func wholeCharacters(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if begin := len(text) - n; utf8.RuneStart(text[begin]) {
			if utf8.FullRune(text[begin:]) {
				break
			}
			return begin
		}
	}
	return len(text)
}

// answers returns a writer for generated text, in which fewer characters are escaped
// than in labels.
func (o *output) answers() io.Writer { return answers{o} }

type answers struct{ *output }

// Write writes text, which ends at the end of a character, as tokens do.
func (a answers) Write(text []byte) (int, error) {
	if !a.escapes {
		return a.file.Write(text)
	}
	if _, err := io.WriteString(a.file, escape(string(text), escapedInAnswer)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// sequence is a control sequence that reel writes itself.
type sequence string

// The control sequences of reel.
const (
	toLineStart   sequence = "\r"
	clearToEnd    sequence = "\x1b[K" // of the line
	nextRow       sequence = "\r\n"
	enterScreen   sequence = "\x1b[?1049h\x1b[?25l" // alternate screen, no cursor
	leaveScreen   sequence = "\x1b[?25h\x1b[?1049l"
	toScreenStart sequence = "\x1b[H"
	clearBelow    sequence = "\x1b[J"
	pastesMarked  sequence = "\x1b[?2004h" // bracketed paste mode
	pastesPlain   sequence = "\x1b[?2004l"
	dimmed        sequence = "\x1b[2m"
	undimmed      sequence = "\x1b[22m"
)

// draw writes all parts in one call: sequences as they are, other values as labels of
// one line.
func (o *output) draw(parts ...any) error {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case sequence:
			b.WriteString(string(p))
		default:
			b.WriteString(oneLine(fmt.Sprint(p)))
		}
	}
	_, err := io.WriteString(o.file, b.String())
	return err
}
