package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"reel.internal/reel/protocol"
)

// input is the source of a chat's messages.
type input interface {
	// next shows the prompt, if a person types, and returns the next line.
	next(ctx context.Context, prompt string) line
	// remember adds a message to the history.
	remember(text string)
}

// line is a line of the input without its newline, or an error: io.EOF at its end,
// errCleared after a Ctrl-C that cleared the line, interrupted after another.
type line struct {
	text string
	err  error
}

// openInput returns the source of messages: a line editor if the terminal allows. Call
// end at the end of the chat.
func openInput(ctx context.Context, h *history) (in input, end func(), err error) {
	if !editable() {
		return &plainLines{lines: readLines(os.Stdin), terminal: isTerminal(os.Stdin)}, func() {}, nil
	}
	e, err := newEditor(h)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, e.close)
	return e, func() { stop(); e.close() }, nil
}

// plainLines reads lines without editing: from a pipe, a file, or a terminal that the
// editor can't use.
type plainLines struct {
	lines    <-chan line
	terminal bool
}

// terminalLine is the length to which the kernel cuts a line that is typed on a terminal.
const terminalLine = 4095

// next implements input.
func (p *plainLines) next(ctx context.Context, prompt string) line {
	if p.terminal {
		fmt.Fprint(stderr(), prompt)
	}
	select {
	case l := <-p.lines:
		if p.terminal && len(l.text) >= terminalLine {
			return line{err: usagef("the terminal cuts lines at %d bytes, so nothing of this one was taken: "+
				"send the text through a pipe, or set TERM, as to xterm, for a line editor", terminalLine)}
		}
		if p.terminal && errors.Is(l.err, io.EOF) {
			fmt.Fprintln(stderr())
		}
		return l
	case <-ctx.Done():
		return line{err: ctx.Err()}
	}
}

// remember implements input: without an editor there is no history.
func (*plainLines) remember(string) {}

// readLines returns a channel of in's lines, followed by the error that ends it.
func readLines(in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		s := bufio.NewScanner(in)
		s.Buffer(nil, protocol.MaxFrame)
		for s.Scan() {
			lines <- line{text: s.Text()}
		}
		err := s.Err()
		if err == nil {
			err = io.EOF
		}
		lines <- line{err: err}
	}()
	return lines
}

// ignoreEOF returns nil for the end of the input, and a usage error for a line that is
// too long.
func ignoreEOF(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return usagef("the message is longer than %d bytes, the most that a frame holds", protocol.MaxFrame)
	}
	return err
}

// quotes begin and end a message of several lines.
const quotes = `"""`

// quoted returns text without the quotes at its beginning, and whether it has them. A
// paste of several lines, such as a program, has them only if it ends with them too.
func quoted(text string) (rest string, is bool) {
	rest, is = strings.CutPrefix(text, quotes)
	return rest, is && (!strings.Contains(rest, "\n") || strings.HasSuffix(rest, quotes))
}

// readQuoted returns the message that begins with first, the text after quotes, and goes
// on to the next quotes at the end of a line.
func readQuoted(ctx context.Context, in input, first string) line {
	lines := []string{first}
	for size := len(first); !strings.HasSuffix(lines[len(lines)-1], quotes); {
		l := in.next(ctx, "... ")
		if l.err != nil {
			return line{err: unfinished(l.err)}
		}
		lines = append(lines, strings.TrimRight(l.text, " \t"))
		if size += len(l.text) + 1; size > protocol.MaxFrame {
			return line{err: usagef("the message is longer than %d bytes, the most that a frame holds: nothing was sent",
				protocol.MaxFrame)}
		}
	}
	text := strings.TrimSuffix(strings.Join(lines, "\n"), quotes)
	return line{text: strings.TrimSuffix(strings.TrimPrefix(text, "\n"), "\n")}
}

// unfinished returns the error for a message whose input ended with err: Ctrl-C ends the
// message, not the chat.
func unfinished(err error) error {
	var signalled interrupted
	switch {
	case errors.Is(err, io.EOF):
		return usagef("the input ended before %s: nothing was sent", quotes)
	case errors.As(err, &signalled):
		return errCleared
	}
	return err
}
