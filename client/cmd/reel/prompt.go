package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"reel.internal/reel/protocol"
)

// prompt joins the words of the command line, a blank line, and the text of file, or of
// standard input if file is empty.
func prompt(ctx context.Context, words []string, file string) (string, error) {
	input, err := readInput(ctx, file)
	if err != nil {
		return "", err
	}
	return join(strings.Join(words, " "), input), nil
}

// join joins a and b with a blank line, unless one is empty. It drops one newline at the
// end of b, which ends the last line of a text file.
func join(a, b string) string {
	b = strings.TrimSuffix(b, "\n")
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}

// readInput reads file, or standard input if it can hold a text. Ending ctx ends the
// wait for a writer.
func readInput(ctx context.Context, file string) (string, error) {
	in := os.Stdin
	switch {
	case file == "" && !readable(in):
		return "", nil
	case file != "" && file != "-":
		f, err := os.Open(file)
		if err != nil {
			return "", usagef("%w", err)
		}
		defer f.Close()
		in = f
	}
	read := make(chan result, 1)
	go func() { read <- readText(in) }()
	select {
	case r := <-read:
		return r.text, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

type result struct {
	text string
	err  error
}

// readText reads in to its end, up to the size of a frame.
func readText(in io.Reader) result {
	text, err := io.ReadAll(io.LimitReader(in, protocol.MaxFrame+1))
	if err != nil {
		return result{err: usagef("%w", err)}
	}
	if len(text) > protocol.MaxFrame {
		return result{err: usagef("the prompt is longer than %d bytes, the most that a frame holds: shorten it",
			protocol.MaxFrame)}
	}
	return result{text: string(text)}
}

// readable reports whether in is a pipe, a socket or a file. A terminal's input is for
// Ctrl-C; /dev/null and other devices hold no prompt.
func readable(in *os.File) bool {
	info, err := in.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice == 0 && !info.IsDir()
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef returns a usageError with a message in fmt's form.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}
