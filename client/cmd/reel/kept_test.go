package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
)

// chats sets an empty state directory and returns its directory of conversations.
func chats(t *testing.T) string {
	t.Helper()
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	return filepath.Join(state, "reel", "chats")
}

// resumed returns a talk that keeps its conversation as name.
func resumed(t *testing.T, name string) *talk {
	t.Helper()
	talk := fakeTalk(t, fakegen.Script{}, io.Discard)
	talk.system, talk.messages = "", nil
	if err := talk.resume(name); err != nil {
		t.Fatal(err)
	}
	return talk
}

func contents(messages []client.Message) string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Role+":"+m.Content)
	}
	return strings.Join(all, " ")
}

// A conversation is written after each answer, in place of the file before, for this user alone. Another chat goes
// on with it: by its name, or without one with the last.
func TestContinue(t *testing.T) {
	dir := chats(t)
	first := resumed(t, "work")
	if first.messages != nil {
		t.Errorf("a new conversation has %v", first.messages)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a file is kept before an answer")
	}
	path := filepath.Join(dir, "work.json")
	var before os.FileInfo
	for i, text := range []string{"a", "b"} {
		if err := first.ask(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o600 || before != nil && os.SameFile(before, info) {
			t.Fatalf("answer %d: %v, %v; the file before is written to", i, info, err)
		}
		before = info
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("files: %v", files)
	}
	if again := resumed(t, "work"); contents(again.messages) != "user:a assistant:a user:b assistant:b" {
		t.Errorf("%v", again.messages)
	}
	other := resumed(t, "other")
	if err := other.ask(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	older := time.Now().Add(-time.Hour)
	for _, last := range []string{"other", "work"} {
		if got := resumed(t, lastKept); got.kept.name != last {
			t.Errorf("the last conversation is %s, want %s", got.kept.name, last)
		}
		if err := os.Chtimes(filepath.Join(dir, "other.json"), older, older); err != nil {
			t.Fatal(err)
		}
	}
}

// A system message is part of a conversation. --system replaces it.
func TestContinueWithASystemMessage(t *testing.T) {
	chats(t)
	talk := fakeTalk(t, fakegen.Script{}, io.Discard) // with the system message S
	if err := errors.Join(talk.resume(lastKept), talk.ask(t.Context(), "a")); err != nil {
		t.Fatal(err)
	}
	if talk.kept.name != firstKept {
		t.Errorf("the first conversation is %s", talk.kept.name)
	}
	if got := resumed(t, lastKept); got.system != "S" || contents(got.messages) != "system:S user:a assistant:a" {
		t.Errorf("%q, %v", got.system, got.messages)
	}
	other := fakeTalk(t, fakegen.Script{}, io.Discard)
	other.system = "T"
	if err := other.resume(firstKept); err != nil || contents(other.messages) != "system:T user:a assistant:a" {
		t.Errorf("%v, %v", other.messages, err)
	}
}

// A name is a file name without a meaning for shells, terminals and directories.
func TestConversationNames(t *testing.T) {
	chats(t)
	for _, good := range []string{"a", "Work-2026_11.b", "заметки", strings.Repeat("n", maxName)} {
		if k, err := keptFile(good); err != nil || filepath.Base(k.path) != good+".json" {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", ".a", "-a", "a/b", "/a", "a b", "a\x1b", "a\n", "a\u202e", "a\xff",
		strings.Repeat("n", maxName+1)} {
		var wrong mistake
		if k, err := keptFile(bad); !errors.As(err, &wrong) {
			t.Errorf("%q is accepted: %+v", bad, k)
		}
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := keptFile("a"); err == nil {
		t.Error("a conversation is kept without a home directory")
	}
}

// A file that is no conversation is refused with what to do, and stays as it is.
func TestBrokenConversationIsRefused(t *testing.T) {
	dir := chats(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "b.json")
	for name, text := range map[string]string{
		"empty": "", "cut": `{"messages":[{"role":"user","con`,
		"no UTF-8":      "{\"messages\":[{\"role\":\"u\",\"content\":\"\xff\"}]}",
		"unknown field": `{"messages":[],"socket":"x"}`, "no messages": `{"messages":[]}`,
		"trailing": `{"messages":[{"role":"user","content":"a"}]}{}`,
		"too long": `{"messages":[{"role":"user","content":"` + strings.Repeat("x", maxSaved) + `"}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		talk := fakeTalk(t, fakegen.Script{}, io.Discard)
		var wrong mistake
		if err := talk.resume("b"); !errors.As(err, &wrong) || !strings.Contains(wrong.hint, path) || talk.kept != nil {
			t.Errorf("%s: %+v", name, err)
		}
		if after, _ := os.ReadFile(path); string(after) != text {
			t.Errorf("%s: the file has changed", name)
		}
	}
	if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := fakeTalk(t, fakegen.Script{}, io.Discard).resume("b"); err == nil {
		t.Error("a named pipe is a conversation")
	}
}

// Two chats with one conversation do not overwrite each other: the second to answer leaves the file as it is.
func TestConversationOfTwoChats(t *testing.T) {
	dir := chats(t)
	one, two := resumed(t, "x"), resumed(t, "x")
	for _, talk := range []*talk{one, two, one} {
		if err := talk.ask(t.Context(), "hi"); err != nil {
			t.Fatal(err)
		}
	}
	if !two.kept.told || one.kept.told {
		t.Errorf("told the first chat %t, the second %t", one.kept.told, two.kept.told)
	}
	text, err := os.ReadFile(filepath.Join(dir, "x.json"))
	if err != nil || strings.Count(string(text), `"hi"`) != 4 {
		t.Errorf("%s, %v", text, err)
	}
}
