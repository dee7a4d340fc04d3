package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestHistoryPath(t *testing.T) {
	t.Setenv("HOME", "/home/x")
	for state, want := range map[string]string{
		"":         "/home/x/.local/state/reel/history",
		"relative": "/home/x/.local/state/reel/history",
		"/state":   "/state/reel/history",
	} {
		t.Setenv("XDG_STATE_HOME", state)
		if got := historyPath(); got != want {
			t.Errorf("%q: %s, want %s", state, got, want)
		}
	}
}

// TestHistory: messages are kept for this user alone, oldest first.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reel", "history")
	texts := []string{"one", "two\nlines\t\"quoted\"", "中 é"}
	for _, text := range append(texts, strings.Repeat("x", maxHistoryEntry+1), "\xff") {
		(&history{path: path}).add(text)
	}
	if got := (&history{path: path}).load(); !slices.Equal(got, texts) {
		t.Errorf("%q", got)
	}
	for path, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): os.ModeDir | 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	(&history{path: path}).add("more")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("an older file has %v, %v", info.Mode(), err)
	}
	none := &history{}
	if none.add("x"); none.load() != nil {
		t.Error("a history without a path keeps something")
	}
}

// TestHistoryIsBounded: the last 1,000 messages are kept, and at most 1 MiB of them; other
// lines are skipped.
func TestHistoryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	for _, size := range []int{1, 4000} {
		var lines strings.Builder
		for i := range 3 * maxHistory {
			fmt.Fprintf(&lines, "\"%d %s\"\n\nbroken\n7\n", i, strings.Repeat("x", size))
		}
		if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got := (&history{path: path}).load()
			if n := len(got); n > maxHistory || n < 200 || !strings.HasPrefix(got[n-1], "2999 ") {
				t.Errorf("%d messages of %d bytes", n, size)
			}
			if info, err := os.Stat(path); err != nil || info.Size() > maxHistoryBytes || info.Mode() != 0o600 {
				t.Errorf("the file has %d bytes, %v, %v", info.Size(), info.Mode(), err)
			}
		}
	}
	h := &history{path: path}
	for i := range 400 {
		h.add(fmt.Sprint(i, strings.Repeat("y", maxHistoryEntry-10)))
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 2*maxHistoryBytes+maxHistoryEntry {
		t.Errorf("after one chat the file has %d bytes, %v", info.Size(), err)
	}
}

// TestHistoryIsAFile: another kind of file does not block the chat, and a message's
// control characters are escaped, because the editor displays it.
func TestHistoryIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	h := &history{path: path}
	if h.add("x"); h.load() != nil || !h.told {
		t.Error("a pipe is read")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`"a\u001b[2J\u202e"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := h.load(); len(got) != 1 || got[0] != `a\x1b[2J\u202e` {
		t.Errorf("%q", got)
	}
}
