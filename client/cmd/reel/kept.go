package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"reel.internal/reel/client"
)

// kept is the file of the conversation that --continue keeps, in the format of /save. It is
// written after each answer.
type kept struct {
	name string
	path string
	seen os.FileInfo // of the file as it was read or written last; nil: there was none
	told bool        // that it can't be written
}

// lastKept is the NAME of --continue for the conversation that was kept last.
const lastKept = "last"

// firstKept names a conversation that is kept without a name while there is no other.
const firstKept = "chat"

// maxName bounds the bytes of a conversation's name.
const maxName = 64

// keptFile returns the file of the conversation with this name.
func keptFile(name string) (*kept, error) {
	state := stateDir()
	if state == "" {
		return nil, mistake{"there is no home directory to keep a conversation in", "set $HOME or $XDG_STATE_HOME"}
	}
	dir := filepath.Join(state, "chats")
	if name == lastKept {
		name = newestKept(dir)
	}
	if !isName(name) {
		return nil, mistake{fmt.Sprintf("--continue %s is no name for a conversation", quote(name)),
			fmt.Sprintf("give 1 to %d letters, digits, dots, hyphens and underscores, the first a letter or a digit",
				maxName)}
	}
	return &kept{name: name, path: filepath.Join(dir, name+".json")}, nil
}

// isName reports whether name can be a conversation's: a file name without a meaning for
// shells, terminals and directories.
func isName(name string) bool {
	for i, r := range name {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r):
		case i == 0, !strings.ContainsRune("._-", r):
			return false
		}
	}
	return name != "" && len(name) <= maxName
}

// newestKept returns the name of the conversation in dir that was written last, or firstKept.
func newestKept(dir string) string {
	name, newest := firstKept, os.FileInfo(nil)
	entries, _ := os.ReadDir(dir) // without a directory nothing was kept
	for _, e := range entries {
		base, is := strings.CutSuffix(e.Name(), ".json")
		info, err := e.Info()
		if is && isName(base) && err == nil && (newest == nil || info.ModTime().After(newest.ModTime())) {
			name, newest = base, info
		}
	}
	return name
}

// read returns the file's conversation, or nil if there is no file.
func (k *kept) read(l client.Limits) ([]client.Message, error) {
	text, err := readSaved(k.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var messages []client.Message
	if err == nil {
		messages, err = parseSaved(text, l)
	}
	if err == nil {
		k.seen, err = os.Stat(k.path)
	}
	if err != nil {
		return nil, mistake{fmt.Sprintf("cannot go on with %s: %v", k.name, err),
			"the file is left as it is: correct or move " + quote(k.path) + ", or give another name"}
	}
	return messages, nil
}

// errChanged means that something else wrote a kept conversation.
var errChanged = errors.New("another program has changed the file, which is left as it is: /save writes a new one")

// write replaces the file. If that fails, it says why, once.
func (k *kept) write(model string, messages []client.Message) {
	if k == nil {
		return
	}
	if err := k.replace(model, messages); err != nil && !k.told {
		k.told = true
		fmt.Fprintf(stderr(), "reel: note: the conversation is not kept: %s\n", oneLine(err.Error()))
	}
}

func (k *kept) replace(model string, messages []client.Message) error {
	now, err := os.Stat(k.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !sameFile(k.seen, now) {
		return errChanged
	}
	text, err := encodeSaved(model, messages)
	if err == nil && len(text) > maxSaved {
		err = fmt.Errorf("it is longer than %d bytes", maxSaved)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(k.path), 0o700)
	}
	if err == nil {
		err = replaceFile(k.path, text)
	}
	if err == nil {
		k.seen, err = os.Stat(k.path)
	}
	return err
}

// sameFile reports whether a and b are of the same unchanged file, or both of none.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// resume goes on with the conversation of --continue NAME, or begins to keep this one.
func (t *talk) resume(name string) error {
	k, err := keptFile(name)
	if err != nil {
		return err
	}
	messages, err := k.read(t.client.Limits())
	if err != nil {
		return err
	}
	t.kept = k
	if messages == nil {
		t.tell("keeps this conversation as " + k.name)
		return nil
	}
	system := t.system
	t.adopt(messages)
	if system != "" {
		t.replaceSystem(system)
	}
	t.tell(fmt.Sprintf("goes on with %s, %d messages", k.name, len(messages)))
	return nil
}

// tell prints a note for a person.
func (t *talk) tell(note string) {
	if w := stderr(); t.terminal && w.terminal {
		fmt.Fprintln(w, "reel:", note)
	}
}
