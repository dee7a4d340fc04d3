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

// Workers is how many texts a template makes at once, each in a process of its own.
// The second process starts when a text finds the first one busy, and stays.
const Workers = 2

// Template is a chat template, run by processes of its own. It may be used by
// many goroutines: those past Workers wait for one another.
type Template struct {
	source  Source
	command func() *exec.Cmd // starts a process that calls Serve
	limit   time.Duration
	places  chan struct{} // holds one for each text that is being made

	mu     sync.Mutex
	idle   []*worker
	busy   map[*worker]bool
	closed bool
}

// New starts a process by command, which has to call Serve on its standard
// input and output, and gives it the template. Errors: ErrTemplate, and that the
// process can't be started.
func New(s Source, command func() *exec.Cmd) (*Template, error) {
	t := &Template{
		source: s, command: command, limit: renderTime,
		places: make(chan struct{}, Workers), busy: map[*worker]bool{},
	}
	w, err := t.start()
	if err == nil {
		t.put(w)
	}
	return t, err
}

// Render returns the prompt that messages make, which the answer follows. It has
// at most so many bytes. If the process is killed by somebody else, another one
// makes the text: once, since the system kills what takes its memory. Errors:
// ErrRefused, ErrTemplate, ErrTooLong.
func (t *Template) Render(messages []protocol.Message, most int) (string, error) {
	t.places <- struct{}{}
	defer func() { <-t.places }()
	j := job{Messages: messages, Most: most}
	r, err := t.try(j)
	if errors.Is(err, errKilled) {
		r, err = t.try(j)
	}
	if err != nil {
		return "", err
	}
	return r.Text, r.err()
}

// try has an idle process do a job, or else a new one.
func (t *Template) try(j job) (result, error) {
	w, err := t.take()
	if err != nil {
		return result{}, err
	}
	r, err := t.ask(w, j, t.limit)
	if err == nil {
		t.put(w)
	}
	return r, err
}

// take returns a process that is idle, or starts one.
func (t *Template) take() (*worker, error) {
	t.mu.Lock()
	if n := len(t.idle); n > 0 && !t.closed {
		w := t.idle[n-1]
		t.idle = t.idle[:n-1]
		t.busy[w] = true
		t.mu.Unlock()
		return w, nil
	}
	t.mu.Unlock()
	return t.start()
}

// put makes a busy process idle, or ends it where the template was closed.
func (t *Template) put(w *worker) {
	t.mu.Lock()
	delete(t.busy, w)
	closed := t.closed
	if !closed {
		t.idle = append(t.idle, w)
	}
	t.mu.Unlock()
	if closed {
		w.end()
	}
}

// start starts a process, which counts as busy, and gives it the template.
func (t *Template) start() (*worker, error) {
	w, err := t.launch()
	if err != nil {
		return nil, err
	}
	r, err := t.ask(w, job{Source: &t.source}, startTime)
	if err == nil && r.err() != nil {
		t.drop(w)
		err = r.err()
	}
	return w, err
}

// launch starts a process, unless the template was closed.
func (t *Template) launch() (*worker, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("%w: the generator ends", ErrTemplate)
	}
	w, err := startWorker(t.command())
	if err != nil {
		return nil, fmt.Errorf("%w: its process can't be started: %w", ErrTemplate, err)
	}
	t.busy[w] = true
	return w, nil
}

// ask has a busy process do a job. One that does not is ended.
func (t *Template) ask(w *worker, j job, limit time.Duration) (result, error) {
	r, err := w.ask(j, limit)
	if err == nil {
		return r, nil
	}
	killed := t.drop(w) && lost(err)
	switch {
	case errors.Is(err, errSlow):
		return r, fmt.Errorf("%w: it takes more than %v", ErrTemplate, limit)
	case killed:
		return r, fmt.Errorf("%w: %w: %w", ErrTemplate, errKilled, err)
	}
	return r, fmt.Errorf("%w: its process ended, perhaps for want of memory or depth: %w", ErrTemplate, err)
}

// drop ends a busy process, and reports whether a signal did.
func (t *Template) drop(w *worker) (bySignal bool) {
	t.mu.Lock()
	delete(t.busy, w)
	t.mu.Unlock()
	return w.end()
}

// Close ends the template's processes, the busy ones too.
func (t *Template) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, w := range t.idle {
		w.end()
	}
	t.idle = nil
	for w := range t.busy {
		_ = w.command.Process.Kill() // the text that it makes ends it
	}
}
