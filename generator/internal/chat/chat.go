// Package chat renders a conversation to a prompt with a checkpoint's chat template, as
// transformers does.
//
// A template is a program that comes with the checkpoint, and is not trusted. Package jinja
// bounds its calls and each of its texts, but not its time and all of its memory. So templates
// run in worker processes, with bounded memory, which are killed when they take too long.
package chat

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// Errors of a template. They are wrapped with their cause.
var (
	// ErrTemplate: the template cannot be parsed, fails, or takes more time, memory or
	// recursion than it may.
	ErrTemplate = errors.New("the chat template fails")
	// ErrRefused: the template called raise_exception, since it does not accept the messages.
	ErrRefused = errors.New("the chat template refuses the messages")
	// ErrTooLong: the rendered text exceeds its bound.
	ErrTooLong = errors.New("the chat template's text is too long")
)

// Source is a template and the special tokens that it may use.
type Source struct {
	Template string            `json:"template"`
	Tools    string            `json:"tools,omitempty"` // the template for requests with tools; empty: Template
	Tokens   map[string]string `json:"tokens"`          // bos_token, eos_token and the like, by name
}

const (
	renderTime = 2 * time.Second  // bound on rendering one prompt, which usually takes a millisecond
	startTime  = 10 * time.Second // bound on starting a worker and parsing the template
)

// maxWorkers is the number of prompts that a template renders at once, each in a process of
// its own. The second process starts when a prompt finds the first one busy, and stays.
const maxWorkers = 2

// Template is a chat template with its worker processes. It is safe for concurrent use: calls
// beyond maxWorkers wait.
type Template struct {
	source  Source
	command func() *exec.Cmd // returns a process that calls Serve
	limit   time.Duration    // for one prompt
	permits chan struct{}    // holds an element for each prompt that is being rendered

	mu      sync.Mutex
	idle    []*worker
	busy    map[*worker]bool
	closed  bool
	retired bool // no worker stays idle
}

// New starts a worker and gives it the template. command returns a process that must call
// [Serve] on its standard input and output. Errors are [ErrTemplate], also if the process
// cannot be started.
func New(s Source, command func() *exec.Cmd) (*Template, error) {
	t := &Template{
		source: s, command: command, limit: renderTime,
		permits: make(chan struct{}, maxWorkers), busy: map[*worker]bool{},
	}
	w, err := t.start()
	if err == nil {
		t.put(w)
	}
	return t, err
}

// Request is a conversation to render.
type Request struct {
	// Messages are data, except for those that are Special.
	Messages []protocol.Message
	// Tools is the JSON text of a list of tools; empty: the template has none. Its texts are data.
	Tools string
	// Variables are further variables of the template, with values of types nil, bool, int64,
	// uint64, float64, string, []any and map[string]any. [CheckVariables] says which names they
	// may have. Their texts are data.
	Variables map[string]any
	MaxBytes  int // of the prompt
}

// Render returns the prompt for a request, up to the start of the answer. If a signal from
// outside kills the worker, Render retries once in another one; not again, since the template's
// memory may be the reason. Errors: [ErrRefused], [ErrTemplate], [ErrTooLong].
func (t *Template) Render(r Request) (marked.Text, error) {
	variables, err := msgpack.Marshal(r.Variables)
	if err != nil {
		return nil, fmt.Errorf("%w: its variables: %w", ErrTemplate, err)
	}
	t.permits <- struct{}{}
	defer func() { <-t.permits }()
	j := job{Messages: r.Messages, Tools: r.Tools, Variables: variables, MaxBytes: r.MaxBytes}
	answer, err := t.run(j)
	if errors.Is(err, errKilled) {
		answer, err = t.run(j)
	}
	if err != nil {
		return nil, err
	}
	return answer.text(), answer.err()
}

// run runs a job in an idle worker, or in a new one.
func (t *Template) run(j job) (result, error) {
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

// take returns an idle worker, which becomes busy, or starts one.
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

// put makes a busy worker idle, or ends it if the template is closed or retired.
func (t *Template) put(w *worker) {
	t.mu.Lock()
	delete(t.busy, w)
	ends := t.closed || t.retired
	if !ends {
		t.idle = append(t.idle, w)
	}
	t.mu.Unlock()
	if ends {
		w.end()
	}
}

// start starts a worker, which counts as busy, and gives it the template.
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

// launch starts a worker, unless the template is closed.
func (t *Template) launch() (*worker, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fmt.Errorf("%w: the generator ends", ErrTemplate)
	}
	w, err := startWorker(t.command())
	if err != nil {
		return nil, fmt.Errorf("%w: its process cannot be started: %w", ErrTemplate, err)
	}
	t.busy[w] = true
	return w, nil
}

// ask runs a job in a busy worker. It ends a worker that fails.
func (t *Template) ask(w *worker, j job, limit time.Duration) (result, error) {
	r, err := w.ask(j, limit)
	if err == nil {
		return r, nil
	}
	killed := t.drop(w) && isClosedPipe(err)
	switch {
	case errors.Is(err, errSlow):
		return r, fmt.Errorf("%w: it takes more than %v", ErrTemplate, limit)
	case killed:
		return r, fmt.Errorf("%w: %w: %w", ErrTemplate, errKilled, err)
	}
	return r, fmt.Errorf("%w: its process ended, perhaps out of memory or stack: %w", ErrTemplate, err)
}

// drop ends a busy worker. It reports whether a signal ended the process.
func (t *Template) drop(w *worker) (bySignal bool) {
	t.mu.Lock()
	delete(t.busy, w)
	t.mu.Unlock()
	return w.end()
}

// Retire ends the template's idle workers; others end after their prompt. Further calls of Render start a worker each.
func (t *Template) Retire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retired = true
	t.endIdle()
}

// endIdle ends the idle workers. t.mu is held.
func (t *Template) endIdle() {
	for _, w := range t.idle {
		w.end()
	}
	t.idle = nil
}

// Close ends the template's workers. Running calls of Render fail.
func (t *Template) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.endIdle()
	for w := range t.busy {
		_ = w.command.Process.Kill() // the goroutine in ask reaps it
	}
}
