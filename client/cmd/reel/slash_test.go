package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/client/internal/fakegen"
	"reel.internal/reel/protocol"
)

// runLines gives the chat lines and returns the first error.
func (t *talk) runLines(test *testing.T, lines ...string) (first error) {
	test.Helper()
	in := t.in.(*typed)
	in.lines = lines
	for len(in.lines) > 0 {
		if err := t.take(test.Context(), t.in.next(test.Context(), "> ")); first == nil {
			first = err
		}
	}
	return first
}

// isUsage reports whether err is a usage error that contains text.
func isUsage(err error, text string) bool {
	var usage usageError
	return errors.As(err, &usage) && strings.Contains(err.Error(), text)
}

// TestMessages: which lines are messages, and their text.
func TestMessages(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  []string
	}{
		{[]string{"a", "", "  ", " /new"}, []string{"a", " /new"}},
		{[]string{`"""`, "a", "", " b", `"""`, "c"}, []string{"a\n\n b", "c"}},
		{[]string{`"""a"""`, `"""b`, `c""" `}, []string{"a", "b\nc"}},
		{[]string{`""""""`, `"quoted"`}, []string{`"quoted"`}},
		{[]string{`"""` + "a\nb" + `"""`, `"""doc"""` + "\ncode"}, []string{"a\nb", `"""doc"""` + "\ncode"}},
		{[]string{"/bin/sh\nand more"}, []string{"/bin/sh\nand more"}},
	} {
		talk := fakeTalk(t, fakegen.Script{}, io.Discard)
		if err := talk.runLines(t, c.lines...); err != nil {
			t.Errorf("%q: %v", c.lines, err)
		}
		got := []string{}
		for _, m := range talk.messages {
			if m.Role == "user" {
				got = append(got, m.Content)
			}
		}
		if strings.Join(got, "|") != strings.Join(c.want, "|") {
			t.Errorf("%q: %q, want %q", c.lines, got, c.want)
		}
		if kept := talk.in.(*typed).remembered; strings.Join(kept, "|") != strings.Join(c.want, "|") {
			t.Errorf("%q: the history has %q", c.lines, kept)
		}
	}
}

// TestUnknownCommands: they are refused on a terminal and messages elsewhere.
func TestUnknownCommands(t *testing.T) {
	talk := fakeTalk(t, fakegen.Script{}, io.Discard)
	for line, want := range map[string]string{
		"/frobnicate now": "no command /frobnicate", "/": "no command /", "/New": "no command /New",
		"/new year": "/new takes no words", "/exit now": "/exit takes no words", "/quit now": "takes no words",
		"/save": "name of a file", "/load": "name of a file", "/regenerate": "there must be one",
		"/set colour red": "no setting colour", `"""`: `ended before """`,
	} {
		if err := talk.runLines(t, line); !isUsage(err, want) || len(talk.messages) != 1 {
			t.Errorf("%s: %v, %d messages", line, err, len(talk.messages))
		}
	}
	for _, line := range []string{"/exit", "/quit"} {
		if err := talk.runLines(t, line); !errors.Is(err, errEnd) {
			t.Errorf("%s: %v", line, err)
		}
	}
	talk.terminal = false
	for _, line := range []string{"/frobnicate now", "/help", `"""`} {
		talk.messages = nil
		if err := talk.runLines(t, line); err != nil || len(talk.messages) != 2 {
			t.Errorf("without a terminal, %s: %v, %+v", line, err, talk.messages)
		}
	}
}

func TestSystemCommand(t *testing.T) {
	talk := fakeTalk(t, fakegen.Script{}, io.Discard)
	if err := talk.runLines(t, "a", "/system Be terse.", "/system"); err != nil {
		t.Fatal(err)
	}
	if m := talk.messages; len(m) != 3 || m[0].Content != "Be terse." || m[1].Content != "a" {
		t.Errorf("%+v", m)
	}
	if err := talk.runLines(t, "/new"); err != nil || len(talk.messages) != 1 {
		t.Errorf("after /new %+v, %v", talk.messages, err)
	}
	if err := talk.runLines(t, "b", "/system -"); err != nil || len(talk.messages) != 2 || talk.system != "" {
		t.Errorf("without a system message %+v, %v", talk.messages, err)
	}
}

// TestRegenerate: the last answer is replaced, and stays if the request fails.
func TestRegenerate(t *testing.T) {
	var out bytes.Buffer
	talk := fakeTalk(t, fakegen.Script{}, &out)
	if err := talk.runLines(t, "a", "b", "/regenerate"); err != nil || out.String() != "a\nb\nb\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if n := len(talk.messages); n != 5 {
		t.Errorf("%d messages", n)
	}
	failing := fakeTalk(t, fakegen.Script{Ending: fakegen.Fail, Error: protocol.Errorf(protocol.CodeBusy, "", "no")}, &out)
	failing.messages = talk.messages
	if err := failing.runLines(t, "/regenerate"); err == nil || len(failing.messages) != 5 {
		t.Errorf("%v, %d messages", err, len(failing.messages))
	}
}

// TestSet: a setting changes further requests; one that the generator would refuse does not.
func TestSet(t *testing.T) {
	talk := fakeTalk(t, fakegen.Script{}, io.Discard)
	err := talk.runLines(t,
		"/set", "/set temperature 0.5", "/set top_k 3", "/set --seed 7", "/set stop THE END", "/set top-k",
		"/set draft 3")
	r := talk.request
	if err != nil || *r.Temperature != 0.5 || *r.TopK != 3 || *r.Seed != 7 || len(r.Stop) != 1 || r.Stop[0] != "THE END" ||
		r.Draft.Most() != 3 {
		t.Errorf("%v: %+v", err, r)
	}
	for line, want := range map[string]string{
		"/set temperature 101": "temperature is 101", "/set temperature hot": "want a number", "/set top_k -1": "top_k is -1",
		"/set draft all": "want on, off or a number, 0 to 7", "/set draft 8": "want on, off or a number, 0 to 7",
		"/set max-tokens 0": "max_tokens is 0", "/set stop " + strings.Repeat("x", 300): "stop[1] has 300 bytes",
	} {
		if err := talk.runLines(t, line); !isUsage(err, want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if r := talk.request; *r.Temperature != 0.5 || *r.TopK != 3 || r.MaxTokens != nil || len(r.Stop) != 1 {
		t.Errorf("a refused setting changed %+v", r)
	}
	err = talk.runLines(t, "/set max-tokens 100000", "/set temperature default", "/set stop default",
		"/set draft default")
	if r := talk.request; err != nil || *r.MaxTokens != 100000 || r.Temperature != nil || len(r.Stop) != 0 || r.Draft != nil {
		t.Errorf("%v: %+v", err, r)
	}
	if got := *talk.limited(talk.request, talk.client.Limits()).MaxTokens; got != 512 {
		t.Errorf("asks for %d tokens", got)
	}
}

// TestSaveAndLoad: a conversation that is saved and loaded is the same.
func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my talk.json")
	talk := fakeTalk(t, fakegen.Script{}, io.Discard)
	if err := talk.runLines(t, "é <&> 中", "/save "+path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !json.Valid(text) || !strings.Contains(string(text), "é <&> 中") {
		t.Errorf("%s, %v", text, err)
	}
	if err := talk.runLines(t, "/save "+path); !isUsage(err, "left as it is") {
		t.Errorf("a file is overwritten: %v", err)
	}
	other := fakeTalk(t, fakegen.Script{}, io.Discard)
	other.system = "other"
	if err := other.runLines(t, "/load "+path); err != nil || len(other.messages) != 3 || other.system != "S" {
		t.Errorf("%v: %+v", err, other.messages)
	}
	for i, m := range other.messages {
		if !reflect.DeepEqual(m, talk.messages[i]) {
			t.Errorf("message %d is %+v", i, m)
		}
	}
	empty := fakeTalk(t, fakegen.Script{}, io.Discard)
	empty.messages = nil
	if err := empty.runLines(t, "/save "+path+"2"); !isUsage(err, "nothing to save") {
		t.Error(err)
	}
}

// TestLoadBounds: a file that /save did not write changes nothing.
func TestLoadBounds(t *testing.T) {
	dir := t.TempDir()
	talk := fakeTalk(t, fakegen.Script{}, io.Discard)
	many := strings.Repeat(`{"role":"user","content":""},`, protocol.MaxMessages)
	for name, text := range map[string]string{
		"empty":    "",
		"list":     "[]",
		"none":     `{"messages":[]}`,
		"unknown":  `{"messages":[{"role":"user","content":"x","special":true}]}`,
		"type":     `{"messages":[{"role":"user","content":7}]}`,
		"role":     `{"messages":[{"content":"x"}]}`,
		"follows":  `{"messages":[{"role":"user","content":"x"}]} {}`,
		"bytes":    `{"messages":[{"role":"user","content":"` + "\xff" + `"}]}`,
		"many":     `{"messages":[` + many + `{"role":"user","content":""}]}`,
		"long":     `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 17000) + `"}]}`,
		"nested":   `{"messages":` + strings.Repeat("[", 100000) + `}`,
		"too long": strings.Repeat(" ", maxSaved) + `{"messages":[{"role":"user","content":"x"}]}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := talk.runLines(t, "/load "+path); !isUsage(err, "/load: ") || len(talk.messages) != 1 {
			t.Errorf("%s: %v, %d messages", name, err, len(talk.messages))
		}
	}
	for _, path := range []string{dir, "/dev/zero", filepath.Join(dir, "missing")} {
		if err := talk.runLines(t, "/load "+path); !isUsage(err, "/load: ") {
			t.Errorf("%s: %v", path, err)
		}
	}
	one := filepath.Join(dir, "one")
	if err := os.WriteFile(one, []byte(`{"messages":[{"role":"user","content":"x"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err := talk.runLines(t, "/load "+one)
	if err != nil || len(talk.messages) != 1 || !reflect.DeepEqual(talk.messages[0], client.Message{Role: "user", Content: "x"}) {
		t.Errorf("%v, %+v", err, talk.messages)
	}
}
