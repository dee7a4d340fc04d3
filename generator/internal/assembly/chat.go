package assembly

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

const (
	templateFile    = "chat_template.jinja"
	tokenizerConfig = "tokenizer_config.json"
	maxTemplateFile = 16 << 20 // bytes of either
)

// WorkerName is the name of the hidden command that runs chat templates.
const WorkerName = "chat-worker"

// chatSource reads a checkpoint's chat template from chat_template.jinja or, without that
// file, the default one of tokenizer_config.json. It returns nil if there is no template.
func chatSource(dir fs.FS) (*chat.Source, error) {
	raw, err := readOptional(dir, tokenizerConfig)
	if err != nil {
		return nil, err
	}
	source := &chat.Source{Tokens: map[string]string{}}
	if raw != nil {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, fmt.Errorf("%s: %w", tokenizerConfig, err)
		}
		if source.Template, err = defaultTemplate(fields["chat_template"]); err != nil {
			return nil, fmt.Errorf("%s: chat_template: %w", tokenizerConfig, err)
		}
		for name, value := range fields {
			if token := tokenText(value); token != "" && strings.HasSuffix(name, "_token") {
				source.Tokens[name] = token
			}
		}
	}
	own, err := readOptional(dir, templateFile)
	if own != nil {
		source.Template = string(own)
	}
	if err != nil || source.Template == "" {
		return nil, err
	}
	return source, nil
}

// readOptional reads a file. It returns nil if the file does not exist.
func readOptional(dir fs.FS, name string) ([]byte, error) {
	raw, err := files.Read(dir, name, maxTemplateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// defaultTemplate returns the value of chat_template: a text, or the text called default in a
// list.
func defaultTemplate(raw json.RawMessage) (string, error) {
	var one string
	if len(raw) == 0 {
		return "", nil
	}
	if raw[0] != '[' {
		err := json.Unmarshal(raw, &one)
		return one, err
	}
	var several []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &several); err != nil {
		return "", err
	}
	for _, t := range several {
		if t.Name == "default" {
			return t.Template, nil
		}
	}
	return "", nil
}

// tokenText returns the text of a special token in tokenizer_config.json: a string, or the
// field content of an object. For other values it returns "".
func tokenText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var token struct{ Content string }
	_ = json.Unmarshal(raw, &token) // leaves it empty
	return token.Content
}

// chatTemplate is a server.Chat with the protocol's errors.
type chatTemplate struct {
	render func(chat.Request) (marked.Text, error)
}

// Render returns the prompt of messages, of at most that many bytes. Errors: bad_request,
// prompt_too_long and template_failed.
func (c chatTemplate) Render(messages []protocol.Message, v protocol.Variables, most int) (marked.Text, error) {
	if err := chat.CheckVariables(slices.Sorted(maps.Keys(v))); err != nil {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "leave it out, or give the variable another name",
			"template: %v", err)
	}
	text, err := c.render(chat.Request{Messages: messages, Variables: v, MaxBytes: most})
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, chat.ErrRefused):
		return nil, protocol.Errorf(protocol.CodeBadRequest, "correct the messages", "%v", err)
	case errors.Is(err, chat.ErrTooLong):
		return nil, protocol.Errorf(protocol.CodePromptTooLong, "shorten the conversation",
			"the messages make a prompt of more than %d bytes", most)
	}
	return nil, protocol.Errorf(protocol.CodeTemplateFailed,
		"send a prompt, as reel --raw does; the checkpoint's authors can correct the template", "%v", err)
}

// startChat starts the process that compiles and runs the template, if the model has one. A
// template that does not compile is left out with a warning, and prompts are served.
func (l *Loaded) startChat(s *chat.Source, defaults protocol.Sampling, worker func() *exec.Cmd) {
	if s == nil {
		return
	}
	t, err := chat.New(*s, worker)
	if err != nil {
		l.Model.ChatFailure = err.Error()
		l.Warnings = append(l.Warnings, "conversations are refused and prompts are served: "+l.Model.ChatFailure+
			"; correct the template and start the generator again")
		return
	}
	l.Model.Chat, l.Model.ChatDefaults, l.endChat = chatTemplate{t.Render}, &defaults, t.Close
}

// chatWorker returns this program as the process that runs chat templates, without its
// arguments. It is the program without a GPU's driver, which starts at once.
func chatWorker() *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	c := exec.Command(strings.TrimSuffix(path, "-cuda"), WorkerName)
	c.Env = []string{"GOMAXPROCS=1"}
	for _, name := range []string{"TZ", "GORACE"} {
		if value, ok := os.LookupEnv(name); ok {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	return c
}
