package main

import (
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"reel.internal/reel/client/internal/fakegen"
)

// TestSetVariable: a variable of the template is set, replaced and removed.
func TestSetVariable(t *testing.T) {
	talk := fakeTalk(t, fakegen.Script{}, io.Discard)
	err := talk.runLines(t, "/set template.enable_thinking true", "/set template.effort very high",
		"/set template.enable_thinking false", "/set template.gone 1", "/set template.gone default",
		"/set template.effort", "/set")
	want := map[string]any{"enable_thinking": false, "effort": "very high"}
	if err != nil || !reflect.DeepEqual(talk.request.Template, want) {
		t.Errorf("%v: %v", err, talk.request.Template)
	}
	for line, fault := range map[string]string{
		"/set template. 1": `the name ""`, "/set template.a-b 1": `the name "a-b"`,
		"/set template.x None": "JSON has null", "/set template.x 1e999": "out of range",
		"/set template.x " + strings.Repeat("[", 20) + strings.Repeat("]", 20): "template.x is nested more than 14 deep",
		"/set template.x \xff": "not valid UTF-8",
	} {
		if err := talk.runLines(t, line); !isUsage(err, fault) {
			t.Errorf("%s: %v, want %s", line, err, fault)
		}
	}
	if !reflect.DeepEqual(talk.request.Template, want) {
		t.Errorf("a refused variable changed %v", talk.request.Template)
	}
}

// TestSetSpecial: messages that are typed after it are special, earlier ones are not.
func TestSetSpecial(t *testing.T) {
	talk := fakeTalk(t, fakegen.Script{}, io.Discard)
	if err := talk.runLines(t, "a", "/set special true", "b", "/set special default", "c"); err != nil {
		t.Fatal(err)
	}
	for _, m := range talk.messages {
		if m.Special != (m.Role == "user" && m.Content == "b") {
			t.Errorf("%+v", m)
		}
	}
}

// TestLoadedMessagesAreNotSpecial: a file's messages are data, in further conversations too.
func TestLoadedMessagesAreNotSpecial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "talk.json")
	talk := fakeTalk(t, fakegen.Script{}, io.Discard)
	lines := []string{"/set special true", "/system X", "a", "/save " + path, "/load " + path, "/new", "b"}
	if err := talk.runLines(t, lines...); err != nil || len(talk.messages) != 3 {
		t.Fatalf("%v, %+v", err, talk.messages)
	}
	if m := talk.messages; m[0].Special || m[0].Content != "X" || !m[1].Special {
		t.Errorf("%+v", m)
	}
}
