package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// typedKeys returns keys whose input is each chunk in turn, and what it passes on.
func typedKeys(t *testing.T, chunks ...string) (*keys, string) {
	t.Helper()
	in, typing := io.Pipe()
	theirs, ours := io.Pipe()
	k := copyKeys(in, ours)
	go func() {
		for _, c := range chunks {
			_, _ = io.WriteString(typing, c)
		}
		typing.Close()
	}()
	passed, err := io.ReadAll(theirs)
	if err != nil {
		t.Fatal(err)
	}
	return k, string(passed)
}

// TestPastes: keys pass unchanged, and a paste becomes one tab, even if its marks come in
// parts.
func TestPastes(t *testing.T) {
	const typed = "a\x1b[Db\tc\x1b[200~one\r\ntwo\rthree \x1b[2J\xff\x1b[201~d\r"
	for _, chunks := range [][]string{{typed}, strings.Split(typed, "")} {
		k, passed := typedKeys(t, chunks...)
		if want := "a\x1b[Dbc\td\r"; passed != want {
			t.Errorf("%d chunks: passed %q, want %q", len(chunks), passed, want)
		}
		if text, refused := k.take(); text != "one\ntwo\nthree \\x1b[2J\\xff" || refused {
			t.Errorf("%d chunks: pasted %q, %v", len(chunks), text, refused)
		}
		if text, _ := k.take(); text != "" {
			t.Errorf("a paste comes twice: %q", text)
		}
	}
}

// TestLongPaste: a paste beyond the size of a frame is refused whole; the next is taken.
func TestLongPaste(t *testing.T) {
	k, _ := typedKeys(t, "\x1b[200~", strings.Repeat("x", protocol.MaxFrame), "x", "y\x1b[201~")
	if text, refused := k.take(); text != "" || !refused {
		t.Errorf("%d bytes, %v", len(text), refused)
	}
	k, _ = typedKeys(t, "\x1b[200~"+strings.Repeat("x", protocol.MaxFrame)+"\x1b[201~")
	if text, refused := k.take(); len(text) != protocol.MaxFrame || refused {
		t.Errorf("%d bytes, %v", len(text), refused)
	}
}

// TestEscapeKey: the key Escape passes, although a paste's mark begins like it.
func TestEscapeKey(t *testing.T) {
	in, typing := io.Pipe()
	theirs, ours := io.Pipe()
	copyKeys(in, ours)
	defer typing.Close()
	go func() { _, _ = io.WriteString(typing, "\x1b") }()
	passed := make(chan string)
	go func() {
		b := make([]byte, 1)
		_, _ = theirs.Read(b)
		passed <- string(b)
	}()
	select {
	case got := <-passed:
		if got != "\x1b" {
			t.Errorf("got %q", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("the key is held")
	}
}

// TestInterruptKey: Ctrl-C after something was typed is told from another.
func TestInterruptKey(t *testing.T) {
	for typed, want := range map[string]bool{
		"\x03": false, "a\x03": true, "a\r\x03": false, "a\x03\x03": false, "\x1b[200~x\x1b[201~\x03": true,
	} {
		if k, _ := typedKeys(t, typed); k.emptied() != want {
			t.Errorf("%q: %v, want %v", typed, !want, want)
		}
	}
}

// TestShownTexts: the editor's form of a text has one row and leads back to the text.
func TestShownTexts(t *testing.T) {
	var s shownTexts
	long := strings.Repeat("line\n", 40)
	for text, want := range map[string]string{
		"plain ↵ ▤ ⇥": "plain ↵ ▤ ⇥",
		"a\n\tb":      "a" + shownNewline + shownTab + "b",
	} {
		if got := s.show(text); got != want || s.text(got) != text {
			t.Errorf("%q: shown as %q, which is %q", text, got, s.text(got))
		}
	}
	shown := s.show(long)
	if strings.Contains(shown, "\n") || !strings.HasSuffix(shown, "[41 lines, 200 bytes]") || s.show(long) != shown {
		t.Errorf("shown as %q", shown)
	}
	if got := s.text("<" + shown + ">" + shown); got != "<"+long+">"+long {
		t.Errorf("got %q", got)
	}
	cut := strings.TrimSuffix(shown, "]") // the person deletes some of the label
	if got := s.text(cut); got != long+"[41 lines, 200 bytes" {
		t.Errorf("got %q", got)
	}
	for i := range 300 {
		text := fmt.Sprint(long, i)
		if got := s.text(s.show(text)); got != text {
			t.Fatalf("block %d is %q", i, got)
		}
	}
	if got := s.text(shown); got != long {
		t.Errorf("the first block is now %q", got)
	}
	if got := s.text("▤" + string([]rune{firstDigit + 200, firstDigit})); !strings.HasPrefix(got, "▤") {
		t.Errorf("an unknown block is %q", got)
	}
}
