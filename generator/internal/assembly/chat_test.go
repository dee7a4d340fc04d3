package assembly

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/protocol"
)

// TestMain also runs a chat template, in the process that a test starts for it.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == WorkerName {
		if err := chat.Serve(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestChatSource(t *testing.T) {
	for name, c := range map[string]struct {
		files    map[string]string
		template string
		tokens   map[string]string
		tools    string
	}{
		"no files": {nil, "", nil, ""},
		"no template": {map[string]string{tokenizerConfig: `{"bos_token":"<s>"}`}, "",
			map[string]string{"bos_token": "<s>"}, ""},
		"null": {map[string]string{tokenizerConfig: `{"chat_template":null}`}, "", nil, ""},
		"one": {map[string]string{tokenizerConfig: `{"chat_template":"T","bos_token":"<s>","eos_token":{"content":"</s>",` +
			`"lstrip":false},` +
			`"pad_token":null,"add_bos_token":true,"model_max_length":5}`}, "T",
			map[string]string{"bos_token": "<s>", "eos_token": "</s>"}, ""},
		"several": {map[string]string{tokenizerConfig: `{"chat_template":[{"name":"tool_use","template":"U"},` +
			`{"name":"default","template":"T"}]}`},
			"T", map[string]string{}, "U"},
		"no default": {map[string]string{tokenizerConfig: `{"chat_template":[{"name":"tool_use","template":"U"}]}`},
			"", nil, "U"},
		"a file":           {map[string]string{templateFile: "F"}, "F", map[string]string{}, ""},
		"a file for tools": {map[string]string{templateFile: "F", toolsFile: "G"}, "F", map[string]string{}, "G"},
		"a file first": {map[string]string{templateFile: "F", tokenizerConfig: `{"chat_template":"T","eos_token":"e"}`},
			"F", map[string]string{"eos_token": "e"}, ""},
	} {
		files := fstest.MapFS{}
		for name, text := range c.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		s, err := chatSource(files)
		if err != nil {
			t.Errorf("%s: %v, %v", name, s, err)
		}
		if s.Template != c.template || s.Tools != c.tools || len(s.Tokens) != len(c.tokens) {
			t.Errorf("%s: %+v", name, s)
		}
		for token, text := range c.tokens {
			if s.Tokens[token] != text {
				t.Errorf("%s: %s is %q", name, token, s.Tokens[token])
			}
		}
	}
	for name, file := range map[string]string{"no JSON": "{", "number": `{"chat_template":7}`,
		"list of numbers": `{"chat_template":[7]}`, "long": strings.Repeat(" ", maxTemplateFile+1)} {
		if s, err := chatSource(fstest.MapFS{tokenizerConfig: &fstest.MapFile{Data: []byte(file)}}); err == nil {
			t.Errorf("%s: %v", name, s)
		}
	}
}

// Each kind of template error has its code.
func TestChatErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		code string
	}{
		{chat.ErrRefused, protocol.CodeBadRequest}, {chat.ErrTooLong, protocol.CodePromptTooLong},
		{chat.ErrTemplate, protocol.CodeTemplateFailed}, {errors.New("what?"), protocol.CodeTemplateFailed},
	} {
		refuses := chatTemplate{render: func(chat.Request) (marked.Text, error) { return nil, c.err }}
		_, err := refuses.Render(server.Conversation{}, 1)
		var e *protocol.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Hint == "" {
			t.Errorf("%v is %v", c.err, err)
		}
	}
}

// A request cannot set a variable that the template's environment defines. The error names it.
func TestReservedVariables(t *testing.T) {
	var seen protocol.Variables
	c := chatTemplate{render: func(r chat.Request) (marked.Text, error) {
		seen = r.Variables
		return nil, nil
	}}
	for _, name := range []string{"messages", "add_generation_prompt", "bos_token", "range", "tojson"} {
		_, err := c.Render(server.Conversation{Variables: protocol.Variables{"a": 1, name: 1, "z": 1}}, 1)
		var e *protocol.Error
		if !errors.As(err, &e) || e.Code != protocol.CodeBadRequest || !strings.Contains(e.Message, `"`+name+`"`) ||
			e.Hint == "" || seen != nil {
			t.Errorf("%s: %v, rendered with %v", name, err, seen)
		}
	}
	if _, err := c.Render(server.Conversation{Variables: protocol.Variables{"enable_thinking": false}},
		1); err != nil || len(seen) != 1 {
		t.Errorf("%v, rendered with %v", err, seen)
	}
}

// Checkpoints with a chat template render conversations, and their process ends with the
// engine.
func TestModelsWithTemplates(t *testing.T) {
	messages := []protocol.Message{{Role: "user", Content: "Hi"}}
	for name, c := range map[string]struct{ template, want, code string }{
		"good": {"{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
			"<|begin_of_text|>user: Hi\n", ""},
		"refuses": {"{{ raise_exception('no') }}", "", protocol.CodeBadRequest},
		"fails":   {"{{ 1 % 0 }}", "", protocol.CodeTemplateFailed},
	} {
		dir := modelDir(t)
		write := func(file, text string) {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(templateFile, c.template)
		write(tokenizerConfig, `{"bos_token":"<|begin_of_text|>"}`)
		l, err := Load(t.Context(), config.Options{Model: dir, MaxSeqLen: 64, MaxBatch: 1}, func(float64, string) {})
		if err != nil {
			t.Fatal(err)
		}
		m := l.Model
		text, err := m.Chat.Render(server.Conversation{Messages: messages}, 1000)
		var said *protocol.Error
		if errors.As(err, &said); text.String() != c.want || (err == nil) != (c.code == "") ||
			err != nil && said.Code != c.code {
			t.Errorf("%s: %q, %v", name, text.String(), err)
		}
		// The prompt has one begin token, from the template.
		ids, err := m.Tokenizer.EncodeMarked(text, false)
		if c.want != "" && (err != nil || ids[0] != 0 || ids[1] == 0) {
			t.Errorf("%s: %v, %v", name, ids, err)
		}
		l.Engine.Stop()
		if err := l.Run(); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Chat.Render(server.Conversation{Messages: messages}, 1000); err == nil {
			t.Errorf("%s: its process is there after the engine's end", name)
		}
	}
	m, err := loadModel(t, config.Options{MaxSeqLen: 64, MaxBatch: 1})
	if err != nil || m.Chat != nil {
		t.Errorf("the embedded model has a template: %v, %v", m.Chat, err)
	}
}

// A program with a GPU's driver runs the templates in the program without.
func TestChatWorker(t *testing.T) {
	c := chatWorker()
	if path, _ := os.Executable(); c.Path != strings.TrimSuffix(path, "-cuda") || c.Args[1] != WorkerName {
		t.Errorf("%v", c)
	}
	l := &Loaded{}
	nowhere := func() *exec.Cmd { return exec.Command("/nowhere") }
	l.startChat(&templates{worker: nowhere, identity: &identifier{}}, "x")
	if l.Model.Chat != nil || l.chat.inUse != nil || !strings.Contains(l.Model.ChatFailure, "/nowhere") {
		t.Errorf("%+v", l.Model)
	}
}

// A template that does not compile is left out, with one warning that names the cause.
func TestTemplatesThatDoNotCompile(t *testing.T) {
	for template, cause := range map[string]string{
		"x\n{{ raise_exception('x' }}": "line 2: unexpected '}', expected ')'",
		"{{ 'a'|nothing }}":            "no filter named nothing",
		"{% if %}":                     "expected an expression",
	} {
		dir := modelDir(t)
		if err := os.WriteFile(filepath.Join(dir, templateFile), []byte(template), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Load(t.Context(), config.Options{Model: dir, MaxSeqLen: 64, MaxBatch: 1}, func(float64, string) {})
		if err != nil {
			t.Fatal(err)
		}
		if l.Model.Chat != nil || !strings.Contains(l.Model.ChatFailure, cause) {
			t.Errorf("%s: %v, %q", template, l.Model.Chat, l.Model.ChatFailure)
		}
		if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], l.Model.ChatFailure) {
			t.Errorf("%s: warnings %q", template, l.Warnings)
		}
		l.Engine.Stop()
		if err := l.Run(); err != nil {
			t.Error(err)
		}
	}
}
