package assembly

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/protocol"
)

func writeTemplate(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rendered returns the prompt of one message, or "" without a template.
func rendered(t *testing.T, c server.Chat) string {
	t.Helper()
	if c == nil {
		return ""
	}
	text, err := c.Render(server.Conversation{Messages: []protocol.Message{{Role: "user", Content: "Hi"}}}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// The template of --chat-template takes the place of the checkpoint's own, with its special tokens. The embedded model,
// which has none, takes conversations by it.
func TestTemplateOfTheSetting(t *testing.T) {
	const template = "{{ bos_token }}[{{ messages[0].content }}]"
	path := writeTemplate(t, filepath.Join(t.TempDir(), "t"), template)
	dir := modelDir(t)
	writeTemplate(t, filepath.Join(dir, templateFile), "own")
	writeTemplate(t, filepath.Join(dir, tokenizerConfig), `{"bos_token":"<|begin_of_text|>"}`)
	const want = "<|begin_of_text|>[Hi]"
	for _, model := range []string{"", dir} {
		l, err := Load(t.Context(), config.Options{Model: model, MaxSeqLen: 64, MaxBatch: 1, ChatTemplate: path},
			func(float64, string) {})
		if err != nil {
			t.Fatal(err)
		}
		if got := rendered(t, l.Model.Chat); got != want || l.Model.ChatDefaults == nil || len(l.Warnings) != 0 {
			t.Errorf("%q: %q, wants %q; %q", model, got, want, l.Warnings)
		}
		l.Engine.Stop()
		if err := l.Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that cannot be read or compiled ends the start before the model is loaded, with its path and what to do.
func TestBadTemplateOfTheSetting(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ path, says string }{
		"missing":      {filepath.Join(dir, "none"), "no such file"},
		"a directory":  {dir, "directory"},
		"empty":        {writeTemplate(t, filepath.Join(dir, "empty"), ""), "empty"},
		"not UTF-8":    {writeTemplate(t, filepath.Join(dir, "bytes"), "\xff"), "UTF-8"},
		"not compiled": {writeTemplate(t, filepath.Join(dir, "if"), "{% if %}"), "expected an expression"},
	} {
		_, err := Load(t.Context(), config.Options{Model: "/nowhere", ChatTemplate: c.path}, func(float64, string) {})
		if failure.ExitCode(err) != failure.ExitConfig || !strings.Contains(err.Error(), c.path) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A model without a tokenizer warns that it doesn't use the file.
func TestTemplateWithoutTokenizer(t *testing.T) {
	l := &Loaded{}
	l.startChat(&templates{noText: true, worker: chatWorker, identity: &identifier{}}, "x")
	if err := l.SetTemplate("/nowhere", nil); err != nil || l.Model.Chat != nil || len(l.Warnings) != 1 {
		t.Errorf("%v, %+v", err, l)
	}
}

// A reload reads the file again. After an error the old template serves, and without the setting the checkpoint's own.
func TestSetTemplate(t *testing.T) {
	path := writeTemplate(t, filepath.Join(t.TempDir(), "t"), "first")
	l := &Loaded{}
	l.startChat(&templates{worker: chatWorker, identity: &identifier{}}, "")
	defer l.chat.end()
	now, sets := l.Model.Chat, 0
	use := func(c server.Chat, d *protocol.Sampling) error {
		if now, sets = c, sets+1; (c == nil) != (d == nil) {
			t.Errorf("%v with %v", c, d)
		}
		return nil
	}
	for _, step := range []struct {
		text, path, want string
		sets             int
		fails            bool
	}{
		{"first", path, "first", 1, false},
		{"first", path, "first", 1, false},
		{"second", path, "second", 2, false},
		{"{% if %}", path, "second", 2, true},
		{"second", "", "", 3, false},
		{"second", "", "", 3, false},
		{"third", path, "third", 4, false},
	} {
		writeTemplate(t, path, step.text)
		if err := l.SetTemplate(step.path, use); (err != nil) != step.fails {
			t.Fatalf("%q: %v", step.text, err)
		}
		if got := rendered(t, now); got != step.want || sets != step.sets {
			t.Errorf("%q: %q after %d changes, wants %+v", step.text, got, sets, step)
		}
	}
	writeTemplate(t, path, "fourth")
	refused := errors.New("refused")
	if err := l.SetTemplate(path, func(server.Chat, *protocol.Sampling) error { return refused }); !errors.Is(err,
		refused) ||
		rendered(t, now) != "third" {
		t.Errorf("%v, %q", err, rendered(t, now))
	}
}

// How a model answers follows from its templates, and its control tokens are markers. A template that is set takes the
// place of both.
func TestAnswers(t *testing.T) {
	own := chat.Source{Template: "{{ messages }}", Tools: "[TOOL_CALLS]{{ tools }}</think>"}
	ids := map[string]int32{"[TOOL_CALLS]": 1, "[ARGS]": 2, "<think>": 3, "</think>": 4}
	c := &templates{own: own,
		encode: func(text marked.Text, _ bool) ([]int32, error) {
			if id, is := ids[text.String()]; is {
				return []int32{id}, nil
			}
			return []int32{7, 8}, nil
		},
		decoder: func([]int32) server.Decoder { return threeDecoder{} },
	}
	a := c.answers(own.Template)
	if a.Form.Family != calls.Mistral || !a.Form.Tools || a.Form.End != "</think>" ||
		!maps.Equal(a.Control, map[int32]string{1: "[TOOL_CALLS]", 2: "[ARGS]", 4: "</think>"}) {
		t.Errorf("%+v", a)
	}
	if a := c.answers("{{ x }}"); a.Form != (calls.Form{}) || len(a.Control) != 0 {
		t.Errorf("%+v", a)
	}
}

// threeDecoder decodes token 3 alone to text.
type threeDecoder struct{ idsOnly }

func (threeDecoder) Push(id int32) string { return map[int32]string{3: "<think>"}[id] }
