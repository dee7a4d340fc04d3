package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// output is standard output or standard error. All that reel prints goes through
// one, so that no string of a generator, a file or another program reaches a
// terminal raw; a test holds that nothing else names os.Stdout and os.Stderr.
type output struct {
	file     *os.File
	terminal bool
	escapes  bool   // false where the bytes have to stay exact
	tail     []byte // of what Write was given: the begin of a character
}

// stdout is where a command prints. Elsewhere than on a terminal it is exact.
func stdout() *output {
	terminal := isTerminal(os.Stdout)
	return &output{file: os.Stdout, terminal: terminal, escapes: terminal}
}

// stderr is where messages go. It escapes always: a log is read on a terminal too.
func stderr() *output {
	return &output{file: os.Stderr, terminal: isTerminal(os.Stderr), escapes: true}
}

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// fd is the output's descriptor, to look at it; what is written to it is not escaped.
func (o *output) fd() int { return int(o.file.Fd()) }

// Write writes text as a label of any number of lines. A character may be
// split over two calls.
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

// flush writes a character's begin of which the rest never came.
func (o *output) flush() error {
	_, err := io.WriteString(o.file, escape(string(o.tail), escapedInLabel))
	o.tail = nil
	return err
}

// wholeCharacters is how many bytes of text come before a character that its end
// cuts off.
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

// answers is where generated text goes: the output, where fewer characters are
// escaped than in labels.
func (o *output) answers() io.Writer { return answers{o} }

type answers struct{ *output }

// Write writes whole characters, as tokens are.
func (a answers) Write(text []byte) (int, error) {
	if !a.escapes {
		return a.file.Write(text)
	}
	if _, err := io.WriteString(a.file, escape(string(text), escapedInAnswer)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// sequence is a control sequence of reel's own.
type sequence string

// The control sequences that reel writes.
const (
	toLineStart   sequence = "\r"
	clearToEnd    sequence = "\x1b[K" // of the line
	nextRow       sequence = "\r\n"
	enterScreen   sequence = "\x1b[?1049h\x1b[?25l" // the other screen, no cursor
	leaveScreen   sequence = "\x1b[?25h\x1b[?1049l"
	toScreenStart sequence = "\x1b[H"
	clearBelow    sequence = "\x1b[J"
)

// draw writes parts at once: sequences as they are, all else as labels of one line.
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
