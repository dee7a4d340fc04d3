package assembly

import (
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"unicode/utf8"

	"reel.internal/reel/generator/internal/calls"
	"reel.internal/reel/generator/internal/chat"
	"reel.internal/reel/generator/internal/files"
	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/protocol"
)

// templates is the chat template of a served model: the checkpoint's own, or that of --chat-template.
type templates struct {
	own      chat.Source // the checkpoint's template, empty if it has none, and its special tokens
	defaults protocol.Sampling
	identity *identifier
	worker   func() *exec.Cmd
	noText   bool // the model has no tokenizer, so no template is used
	// encode returns the tokens of a text, and decoder a Decoder; both are of the model's tokenizer.
	encode  func(marked.Text, bool) ([]int32, error)
	decoder func(after []int32) server.Decoder

	mu    sync.Mutex
	text  string         // of the template in use
	inUse *chat.Template // nil: none
}

// readTemplate returns the text of the template in the file of --chat-template, which compiles. Without a path it
// returns "".
func readTemplate(path string, worker func() *exec.Cmd) (string, error) {
	if path == "" {
		return "", nil
	}
	raw, err := files.Read(files.Dir(filepath.Dir(path)), filepath.Base(path), maxTemplateFile)
	if err == nil && (len(raw) == 0 || !utf8.Valid(raw)) {
		err = errors.New("it is empty, or not UTF-8")
	}
	if err != nil {
		return "", fmt.Errorf("--chat-template %s: %w: give a file with a Jinja2 chat template", path, err)
	}
	t, err := chat.New(chat.Source{Template: string(raw)}, worker)
	if err != nil {
		return "", fmt.Errorf("--chat-template %s: %w: correct the template, or leave it out for the model's own",
			path, err)
	}
	t.Close()
	return string(raw), nil
}

// start starts the process that compiles and runs a template. It returns nil for an empty one.
func (t *templates) start(text string) (*chat.Template, error) {
	if text == "" {
		return nil, nil
	}
	return chat.New(t.source(text), t.worker)
}

// source returns a template with the checkpoint's special tokens and, if it is the checkpoint's own, with the
// checkpoint's template for requests with tools.
func (t *templates) source(text string) chat.Source {
	if text == t.own.Template {
		return t.own
	}
	return chat.Source{Template: text, Tokens: t.own.Tokens}
}

// answers returns how a template has the model answer.
func (t *templates) answers(text string) server.Answers {
	s := t.source(text)
	a := server.Answers{Form: calls.FormOf(s.Template + s.Tools), Control: map[int32]string{}}
	for _, marker := range a.Form.Markers() {
		ids, err := t.encode(marked.Trusted(marker), false)
		if err == nil && len(ids) == 1 && t.decoder(nil).Push(ids[0]) == "" {
			a.Control[ids[0]] = marker
		}
	}
	a.Form = a.Form.With(a.Control)
	return a
}

// chat returns what the server needs of a template; nil: there is none.
func (t *templates) chat(c *chat.Template, text string) (server.Chat, *protocol.Sampling) {
	if c == nil {
		return nil, nil
	}
	return chatTemplate{c.Render, t.answers(text)}, &t.defaults
}

// end ends the template's processes.
func (t *templates) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	end(t.inUse)
}

// end ends the processes of c, if it is not nil.
func end(c *chat.Template) {
	if c != nil {
		c.Close()
	}
}

// startChat starts the chat template: text, or the checkpoint's own if text is empty. A template that does not compile
// is left out with a warning, and prompts are served.
func (l *Loaded) startChat(t *templates, text string) {
	l.chat = t
	if t.noText {
		if text != "" {
			l.Warnings = append(l.Warnings, "--chat-template is not used: the model has no tokenizer")
		}
		return
	}
	t.text = cmp.Or(text, t.own.Template)
	t.identity.setTemplate(t.source(t.text))
	c, err := t.start(t.text)
	if err != nil {
		l.Model.ChatFailure = err.Error()
		l.Warnings = append(l.Warnings, "conversations are refused and prompts are served: "+l.Model.ChatFailure+
			"; correct the template, or give another with --chat-template, and start the generator again")
		return
	}
	t.inUse = c
	l.Model.Chat, l.Model.ChatDefaults = t.chat(c, t.text)
}

// SetTemplate reads the chat template again: from the file at path or, without a path, the checkpoint's own. If it has
// changed, use is called with the new one, which then serves; nil: there is none. After an error the old one serves.
func (l *Loaded) SetTemplate(path string, use func(server.Chat, *protocol.Sampling) error) error {
	t := l.chat
	if t == nil || t.noText {
		return nil
	}
	text, err := readTemplate(path, t.worker)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if text = cmp.Or(text, t.own.Template); text == t.text {
		return nil
	}
	next, err := t.start(text)
	if err != nil {
		return err
	}
	if err := use(t.chat(next, text)); err != nil {
		end(next)
		return err
	}
	if t.inUse != nil {
		t.inUse.Retire()
	}
	t.text, t.inUse = text, next
	t.identity.setTemplate(t.source(text))
	return nil
}
