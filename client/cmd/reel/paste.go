package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"reel.internal/reel/protocol"
)

// A terminal in bracketed paste mode puts these around pasted text.
var (
	pasteStart = []byte("\x1b[200~")
	pasteEnd   = []byte("\x1b[201~")
)

// Keys that keys reads.
const (
	keyInterrupt = '\x03' // Ctrl-C
	keyTab       = '\t'   // tells the editor that a paste waits in keys
)

// markTime bounds the wait for the rest of a paste's start mark, which begins like the
// key Escape.
const markTime = 30 * time.Millisecond

// keys copies what is typed on a terminal to the line editor, which reads single keys.
// It takes out pastes, so that the editor gets each in one piece: it copies a tab in
// place of a paste, and then the editor calls take. The Tab key itself is dropped.
type keys struct {
	in  <-chan []byte // chunks read from the terminal
	out io.WriteCloser

	held   []byte // the beginning of a mark, perhaps
	inside bool   // a paste
	paste  []byte // the text of that paste so far
	long   bool   // and it is longer than a frame

	mu      sync.Mutex
	typed   bool   // something, since the last Enter or Ctrl-C
	cleared bool   // the last Ctrl-C came after something was typed
	waiting []byte // pasted text for take
	refused bool   // a paste was too long
}

// copyKeys copies keys from in to out until in ends.
func copyKeys(in io.Reader, out io.WriteCloser) *keys {
	chunks := make(chan []byte)
	go func() {
		defer close(chunks)
		for {
			chunk := make([]byte, 64<<10)
			n, err := in.Read(chunk)
			if n > 0 {
				chunks <- chunk[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	k := &keys{in: chunks, out: out}
	go k.run()
	return k
}

// run copies chunks until the input ends.
func (k *keys) run() {
	defer k.out.Close()
	for {
		var late <-chan time.Time
		if len(k.held) > 0 && !k.inside {
			late = time.After(markTime)
		}
		select {
		case chunk, more := <-k.in:
			if !more {
				return
			}
			k.add(chunk)
		case <-late:
			k.pass(k.held)
			k.held = nil
		}
	}
}

// add handles a chunk, which may end within a mark.
func (k *keys) add(chunk []byte) {
	rest := append(k.held, chunk...)
	for {
		mark, handle := pasteStart, k.pass
		if k.inside {
			mark, handle = pasteEnd, k.collect
		}
		before, after, found := bytes.Cut(rest, mark)
		if !found {
			whole := len(rest) - partOf(mark, rest)
			handle(rest[:whole])
			k.held = append([]byte(nil), rest[whole:]...)
			return
		}
		handle(before)
		if k.inside {
			k.finish()
		}
		k.inside, rest = !k.inside, after
	}
}

// partOf returns the length of the longest end of text with which mark begins.
func partOf(mark, text []byte) int {
	for n := min(len(mark)-1, len(text)); n > 0; n-- {
		if bytes.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}

// pass gives typed keys to the editor, except tabs.
func (k *keys) pass(typed []byte) {
	k.mu.Lock()
	for _, key := range typed {
		switch key {
		case keyInterrupt:
			k.cleared, k.typed = k.typed, false
		case '\r', '\n':
			k.typed = false
		default:
			k.typed = true
		}
	}
	k.mu.Unlock()
	if typed = bytes.ReplaceAll(typed, []byte{keyTab}, nil); len(typed) > 0 {
		_, _ = k.out.Write(typed) // if the write fails, the editor has gone
	}
}

// collect adds text to the paste, up to the size of a frame.
func (k *keys) collect(text []byte) {
	if len(k.paste)+len(text) > protocol.MaxFrame {
		k.long, k.paste = true, nil
	}
	if !k.long {
		k.paste = append(k.paste, text...)
	}
}

// finish ends the paste and tells the editor.
func (k *keys) finish() {
	k.mu.Lock()
	k.waiting, k.refused, k.typed = append(k.waiting, k.paste...), k.refused || k.long, true
	k.mu.Unlock()
	k.paste, k.long = nil, false
	_, _ = k.out.Write([]byte{keyTab})
}

// take returns the pasted text that the editor has not got yet. refused is true if a
// paste was too long and therefore dropped.
func (k *keys) take() (text string, refused bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, refused = string(k.waiting), k.refused
	k.waiting, k.refused = nil, false
	return pasted(text), refused
}

// emptied reports whether the last Ctrl-C came after something was typed.
func (k *keys) emptied() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cleared
}

// pasted returns text with \n as the only line end and none at the end. Characters on
// which a terminal acts are escaped, since the editor displays the text.
func pasted(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	return escape(strings.TrimSuffix(text, "\n"), escapedInAnswer)
}

// The editor has one row of text. A newline and a tab are shown as an arrow each, and a
// long text as a block. The variation selector after each, which has no width, tells it
// from the same character in a message.
const (
	shownNewline = "↵\ufe0e"
	shownTab     = "⇥\ufe0e"
	block        = "▤"
	firstDigit   = 0xe0100 // the first of 240 variation selectors, two of which number a block
	digits       = 240
)

// The most characters and lines of a text that is not shown as a block.
const (
	inlineRunes = 1000
	inlineLines = 10
)

// shownTexts converts texts to the form in which the editor shows them, and back.
type shownTexts struct {
	blocks []string // the texts that are shown as blocks
}

// show returns the form of text for the editor.
func (s *shownTexts) show(text string) string {
	lines := strings.Count(text, "\n") + 1
	short := lines <= inlineLines && len([]rune(text)) <= inlineRunes
	if short || len(s.blocks) == digits*digits {
		return strings.NewReplacer("\n", shownNewline, "\t", shownTab).Replace(text)
	}
	n := slices.Index(s.blocks, text)
	if n < 0 {
		n = len(s.blocks)
		s.blocks = append(s.blocks, text)
	}
	return block + string([]rune{rune(firstDigit + n/digits), rune(firstDigit + n%digits)}) + label(text)
}

// label describes a text that is shown as a block.
func label(text string) string {
	if !strings.Contains(text, "\n") {
		return fmt.Sprintf("[%d bytes]", len(text))
	}
	return fmt.Sprintf("[%d lines, %d bytes]", strings.Count(text, "\n")+1, len(text))
}

// text returns the text that the editor shows as line.
func (s *shownTexts) text(line string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(line, block)
		b.WriteString(strings.NewReplacer(shownNewline, "\n", shownTab, "\t").Replace(before))
		if !found {
			return b.String()
		}
		text, rest, known := s.blockAt(after)
		if !known {
			text, rest = block, after
		}
		b.WriteString(text)
		line = rest
	}
}

// blockAt returns the text of the block whose number begins line, and the rest of line.
func (s *shownTexts) blockAt(line string) (text, rest string, known bool) {
	runes := []rune(line)
	if len(runes) < 2 {
		return "", line, false
	}
	high, low := int(runes[0])-firstDigit, int(runes[1])-firstDigit
	n := high*digits + low
	if min(high, low) < 0 || max(high, low) >= digits || n >= len(s.blocks) {
		return "", line, false
	}
	return s.blocks[n], strings.TrimPrefix(string(runes[2:]), label(s.blocks[n])), true
}
