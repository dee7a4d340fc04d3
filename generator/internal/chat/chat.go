// Package chat turns a conversation into a prompt by a checkpoint's chat
// template, as transformers does.
//
// A template is a program that came with the checkpoint, and not trusted. gonja
// runs it without bounds, and where its stack or memory runs out Go ends the
// process; so a process of its own runs it, with little memory, and is killed
// when it takes too long.
package chat

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"reel/protocol"
)

// Errors of a template. They come wrapped, with the cause.
var (
	// ErrTemplate is a template that can't be read, that fails, or that takes
	// more time, memory or depth than it may.
	ErrTemplate = errors.New("the chat template fails")
	// ErrRefused is raise_exception: the template does not take the messages.
	ErrRefused = errors.New("the chat template refuses the messages")
	// ErrTooLong is a text past the bound.
	ErrTooLong = errors.New("the chat template's text is too long")
)

// Source is a template and the tokens that it may name.
type Source struct {
	Template string            `json:"template"`
	Tokens   map[string]string `json:"tokens"` // bos_token, eos_token and the like, by name
}

// What a template has for one text, which takes it a millisecond, and its process
// to start and read the template.
const (
	renderTime = 2 * time.Second
	startTime  = 10 * time.Second
)

// Template is a chat template, run by a process of its own. It may be used by
// many goroutines: their texts are made one after another.
type Template struct {
	source  Source
	command func() *exec.Cmd // starts a process that calls Serve
	limit   time.Duration

	mu     sync.Mutex
	worker *worker // nil where none runs
	closed bool
}

// New starts a process by command, which has to call Serve on its standard
// input and output, and gives it the template. Errors: ErrTemplate, and that the
// process can't be started.
func New(s Source, command func() *exec.Cmd) (*Template, error) {
	t := &Template{source: s, command: command, limit: renderTime}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t, t.start()
}

// Render returns the prompt that messages make, which the answer follows. It has
// at most so many bytes. Errors: ErrRefused, ErrTemplate, ErrTooLong.
func (t *Template) Render(messages []protocol.Message, most int) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.worker == nil {
		if err := t.start(); err != nil {
			return "", err
		}
	}
	r, err := t.ask(job{Messages: messages, Most: most}, t.limit)
	if err != nil {
		return "", err
	}
	return r.Text, r.err()
}

// start starts a worker and gives it the template.
func (t *Template) start() error {
	if t.closed {
		return fmt.Errorf("%w: the generator ends", ErrTemplate)
	}
	w, err := startWorker(t.command())
	if err != nil {
		return fmt.Errorf("%w: its process can't be started: %w", ErrTemplate, err)
	}
	t.worker = w
	r, err := t.ask(job{Source: &t.source}, startTime)
	if err == nil {
		err = r.err()
	}
	if err != nil {
		t.stop()
	}
	return err
}

// ask has the worker do a job, or be killed.
func (t *Template) ask(j job, limit time.Duration) (result, error) {
	r, err := t.worker.ask(j, limit)
	if err == nil {
		return r, nil
	}
	t.stop()
	if errors.Is(err, errSlow) {
		return r, fmt.Errorf("%w: it takes more than %v", ErrTemplate, limit)
	}
	return r, fmt.Errorf("%w: its process ended, perhaps for want of memory or depth: %w", ErrTemplate, err)
}

// stop ends the worker; the next text gets another.
func (t *Template) stop() {
	if t.worker != nil {
		t.worker.end()
	}
	t.worker = nil
}

// Close ends the template's process.
func (t *Template) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.stop()
}
