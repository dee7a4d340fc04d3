package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"reel.internal/reel/client/internal/regular"
)

// Bounds of the history's file. A longer message is not kept beyond the chat.
const (
	maxHistory      = 1000 // messages
	maxHistoryBytes = 1 << 20
	maxHistoryEntry = 16 << 10
)

// history is the file with the messages of earlier chats, one JSON string a line. The
// zero value keeps nothing.
type history struct {
	path string
	told bool // that it can't be written
}

// historyPath returns the path of the history's file, or "" without a home directory.
func historyPath() string {
	if dir := stateDir(); dir != "" {
		return filepath.Join(dir, "history")
	}
	return ""
}

// stateDir returns the directory of the files that reel keeps, or "" without a home directory.
func stateDir() string {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return ""
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "reel")
}

// load returns the messages of the file, oldest first. It shortens a file that is longer
// than its bounds.
func (h *history) load() []string {
	if h.path == "" {
		return nil
	}
	file, err := regular.Open(h.path, os.O_RDONLY)
	if err != nil {
		if !os.IsNotExist(err) {
			h.tell(err)
		}
		return nil
	}
	defer file.Close()
	text, whole, err := readEnd(file, 4*maxHistoryBytes)
	if err != nil {
		h.tell(err)
		return nil
	}
	entries, all := parseHistory(text)
	if !whole || !all {
		h.rewrite(entries)
	}
	return entries
}

// parseHistory returns the last entries of text that are within the bounds. all is true
// if there are no others.
func parseHistory(text []byte) (entries []string, all bool) {
	defer func() { slices.Reverse(entries) }()
	lines := bytes.Split(text, []byte("\n"))
	size := 0
	for i := len(lines) - 1; i >= 0; i-- {
		var entry string
		if size += len(lines[i]) + 1; size > maxHistoryBytes || len(entries) == maxHistory {
			return entries, false
		}
		if json.Unmarshal(lines[i], &entry) == nil && entry != "" && len(entry) <= maxHistoryEntry {
			entries = append(entries, escape(entry, escapedInAnswer))
		}
	}
	return entries, true
}

// add appends a message to the file.
func (h *history) add(text string) {
	if h.path == "" || len(text) > maxHistoryEntry || !utf8.ValidString(text) {
		return
	}
	h.tell(h.append(text))
}

func (h *history) append(text string) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	file, err := regular.Open(h.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Chmod(0o600); err != nil { // it may be older, with another mode
		return err
	}
	var line bytes.Buffer
	if err := writeJSON(&line, text); err != nil {
		return err
	}
	if _, err = file.Write(line.Bytes()); err != nil {
		return err
	}
	if info, err := file.Stat(); err == nil && info.Size() > 2*maxHistoryBytes {
		h.load()
	}
	return nil
}

// rewrite replaces the file by one with these entries.
func (h *history) rewrite(entries []string) {
	var text bytes.Buffer
	for _, entry := range entries {
		_ = writeJSON(&text, entry) // a buffer takes everything
	}
	h.tell(replaceFile(h.path, text.Bytes()))
}

// replaceFile writes a file of mode 0600 in place of path. A reader finds the old text or the
// new one, whole.
func replaceFile(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// tell prints once why the history is not kept.
func (h *history) tell(err error) {
	if err == nil || h.told {
		return
	}
	h.told = true
	fmt.Fprintf(stderr(), "reel: note: the history is not kept: %s\n", oneLine(err.Error()))
}

// readEnd reads the last bytes of file, at most limit. whole is true if these are all.
func readEnd(file *os.File, limit int64) (text []byte, whole bool, err error) {
	info, err := file.Stat()
	if err != nil {
		return nil, false, err
	}
	from := max(info.Size()-limit, 0)
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil, false, err
	}
	text, err = io.ReadAll(io.LimitReader(file, limit))
	return text, from == 0, err
}
