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
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/protocol"
)

const (
	templateFile    = "chat_template.jinja"
	toolsFile       = "additional_chat_templates/tool_use.jinja"
	tokenizerConfig = "tokenizer_config.json"
	maxTemplateFile = 16 << 20 // bytes of either
)

// WorkerName is the name of the hidden command that runs chat templates.
const WorkerName = "chat-worker"

// chatSource reads the special tokens of tokenizer_config.json, and the chat templates, which may be empty, from
// chat_template.jinja and toolsFile or, without the first, from tokenizer_config.json.
func chatSource(dir fs.FS) (source chat.Source, err error) {
	raw, err := readOptional(dir, tokenizerConfig)
	if err != nil {
		return source, err
	}
	source.Tokens = map[string]string{}
	if raw != nil {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return source, fmt.Errorf("%s: %w", tokenizerConfig, err)
		}
		if source.Template, source.Tools, err = configTemplates(fields["chat_template"]); err != nil {
			return source, fmt.Errorf("%s: chat_template: %w", tokenizerConfig, err)
		}
		for name, value := range fields {
			if token := tokenText(value); token != "" && strings.HasSuffix(name, "_token") {
				source.Tokens[name] = token
			}
		}
	}
	own, err := readOptional(dir, templateFile)
	if own == nil || err != nil {
		return source, err
	}
	tools, err := readOptional(dir, toolsFile)
	source.Template, source.Tools = string(own), string(tools)
	return source, err
}

// readOptional reads a file. It returns nil if the file does not exist.
func readOptional(dir fs.FS, name string) ([]byte, error) {
	raw, err := files.Read(dir, name, maxTemplateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// configTemplates returns the templates that the value of chat_template has: a text, or a list of texts with names.
// That of requests with tools may be empty.
func configTemplates(raw json.RawMessage) (usual, tools string, err error) {
	if len(raw) == 0 {
		return "", "", nil
	}
	if raw[0] != '[' {
		err := json.Unmarshal(raw, &usual)
		return usual, "", err
	}
	var several []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &several); err != nil {
		return "", "", err
	}
	named := map[string]string{}
	for _, t := range several {
		named[t.Name] = t.Template
	}
	return named["default"], named["tool_use"], nil
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
	render  func(chat.Request) (marked.Text, error)
	answers server.Answers
}

// Answers returns how the template has the model answer.
func (c chatTemplate) Answers() server.Answers { return c.answers }

// Render returns the prompt of a conversation, of at most that many bytes. Errors: bad_request,
// prompt_too_long and template_failed.
func (c chatTemplate) Render(t server.Conversation, most int) (marked.Text, error) {
	if err := chat.CheckVariables(slices.Sorted(maps.Keys(t.Variables))); err != nil {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "leave it out, or give the variable another name",
			"template: %v", err)
	}
	text, err := c.render(chat.Request{Messages: t.Messages, Tools: t.Tools, Variables: t.Variables, MaxBytes: most})
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
