package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/peterh/liner"
	"golang.org/x/term"

	"reel.internal/reel/protocol"
)

// editor reads messages on a terminal, with line editing and history. The library does
// the editing; keys gives it the keys, and pastes in one piece.
type editor struct {
	lines   *liner.State
	keys    *keys
	texts   shownTexts
	history *history
	close   func()
}

// minColumns is the width below which the library edits no line.
const minColumns = 20

// editable reports whether the terminal can be edited on.
func editable() bool {
	width, _, err := term.GetSize(stdout().fd())
	return err == nil && width >= minColumns && isTerminal(os.Stdin) && stdout().terminal && liner.TerminalSupported()
}

// newEditor takes the terminal. Call close to restore it.
func newEditor(h *history) (*editor, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	terminal := os.Stdin
	os.Stdin = theirs // NewLiner keeps it; the terminal's modes belong to descriptor 0
	e := &editor{lines: liner.NewLiner(), history: h}
	os.Stdin = terminal
	e.keys = copyKeys(terminal, ours)
	e.lines.SetCtrlCAborts(true)
	e.lines.SetMultiLineMode(true)
	e.lines.SetBeep(false)
	e.lines.SetWordCompleter(e.insertPaste)
	for _, text := range h.load() {
		e.lines.AppendHistory(e.texts.show(text))
	}
	_ = stdout().draw(pastesMarked)
	e.close = sync.OnceFunc(func() {
		_ = stdout().draw(pastesPlain)
		_ = e.lines.Close()
	})
	return e, nil
}

// insertPaste is called for the tab that keys sends. It inserts the waiting paste at pos.
func (e *editor) insertPaste(line string, pos int) (head string, inserted []string, tail string) {
	text, refused := e.keys.take()
	shown := e.texts.show(text)
	if refused {
		shown += refusedPaste
	}
	runes := []rune(line)
	return string(runes[:pos]), []string{shown}, string(runes[pos:])
}

// refusedPaste is inserted in place of a paste that is too long. A message is not sent
// until it is deleted.
const refusedPaste = block + "[a paste that is too long]"

// errCleared means that Ctrl-C has cleared what was typed.
var errCleared = errors.New("the line was cleared")

// next shows the prompt and returns the line that the person types.
func (e *editor) next(ctx context.Context, prompt string) line {
	read := make(chan line, 1)
	go func() { read <- e.prompt(prompt) }()
	select {
	case l := <-read:
		return l
	case <-ctx.Done():
		e.close()
		return line{err: ctx.Err()}
	}
}

func (e *editor) prompt(prompt string) line {
	text, err := e.lines.Prompt(prompt)
	switch {
	case err == nil && strings.Contains(text, refusedPaste):
		e.remember(e.texts.text(strings.ReplaceAll(text, refusedPaste, "")))
		return line{err: usagef("the pasted text is longer than %d bytes, the most that a frame holds: "+
			"nothing was sent", protocol.MaxFrame)}
	case err == nil:
		return line{text: e.texts.text(text)}
	case errors.Is(err, io.EOF):
		fmt.Fprintln(stderr()) // the cursor is still behind the prompt
		return line{err: err}
	case !errors.Is(err, liner.ErrPromptAborted):
		return line{err: err}
	case e.keys.emptied():
		return line{err: errCleared}
	}
	return line{err: interrupted{syscall.SIGINT}}
}

// remember adds a message to the history.
func (e *editor) remember(text string) {
	e.lines.AppendHistory(e.texts.show(text))
	e.history.add(text)
}
