package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/marked"
	"reel.internal/reel/protocol"
)

// job is a task for the worker process: the first is to parse the template, the others are to
// render messages. Jobs and results are sent as a sequence of JSON values.
type job struct {
	Source   *Source            `json:"source,omitempty"`
	Messages []protocol.Message `json:"messages,omitempty"`
	Tools    string             `json:"tools,omitempty"`
	// Variables is msgpack, which keeps the types of numbers.
	Variables []byte `json:"variables,omitempty"`
	MaxBytes  int    `json:"most"` // of the text
}

// result is the result of a job.
type result struct {
	Text string `json:"text"`
	// Runs are the lengths of the text's pieces in bytes: trusted, data, trusted, ….
	Runs  []int  `json:"runs,omitempty"`
	Kind  string `json:"kind,omitempty"` // of the error: a key of kinds
	Cause string `json:"cause,omitempty"`
}

// succeeded returns the result with a text.
func succeeded(text marked.Text) result {
	r := result{Text: text.String()}
	for _, p := range text {
		for len(r.Runs) == 0 || (len(r.Runs)%2 == 0) != p.Data {
			r.Runs = append(r.Runs, 0)
		}
		r.Runs[len(r.Runs)-1] += len(p.Text)
	}
	return r
}

// text returns the text of a result. What no run covers is data.
func (r result) text() (text marked.Text) {
	rest := r.Text
	for i, n := range r.Runs {
		n = min(max(n, 0), len(rest))
		text = text.Append(rest[:n], i%2 == 1)
		rest = rest[n:]
	}
	return text.Append(rest, true)
}

var kinds = map[string]error{"template": ErrTemplate, "refused": ErrRefused, "long": ErrTooLong}

// err returns the result's error, or nil.
func (r result) err() error {
	if r.Kind == "" {
		return nil
	}
	return workerError{kinds[r.Kind], r.Cause}
}

// workerError is an error from the worker process, with its text there.
type workerError struct {
	kind error
	text string
}

func (e workerError) Error() string { return e.text }
func (e workerError) Unwrap() error { return e.kind }

// failed returns the result for an error.
func failed(err error) result {
	for kind, is := range kinds {
		if errors.Is(err, is) {
			return result{Kind: kind, Cause: err.Error()}
		}
	}
	return result{Kind: "template", Cause: fmt.Sprintf("%v: %v", ErrTemplate, err)}
}

var (
	// errSlow: the worker was killed because its time was over.
	errSlow = errors.New("too slow")
	// errKilled: a signal from outside ended the worker, for example the kernel's when memory
	// is short. A template cannot cause a signal itself: Go exits when memory or stack run out.
	errKilled = errors.New("its process was killed")
	// errLong: the result has more bytes than a worker may send.
	errLong = errors.New("the answer is too long")
)

// isClosedPipe reports whether err is that of a pipe to a process that has ended.
func isClosedPipe(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE)
}

// worker is a process that runs a template.
type worker struct {
	command *exec.Cmd
	in      io.WriteCloser
	jobs    *json.Encoder
	bound   *io.LimitedReader // on the bytes of a result
	results *json.Decoder
}

func startWorker(c *exec.Cmd) (*worker, error) {
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	bound := &io.LimitedReader{R: out}
	return &worker{c, in, json.NewEncoder(in), bound, json.NewDecoder(bound)}, c.Start()
}

const (
	resultBytes = 64 << 10 // of a result without its text
	jsonEscape  = 8        // bytes that JSON takes for one byte of text and its mark, at most
)

// ask runs j and returns its result. It kills the process when the time is over.
func (w *worker) ask(j job, limit time.Duration) (r result, err error) {
	killer := time.AfterFunc(limit, func() { _ = w.command.Process.Kill() })
	w.bound.N = int64(jsonEscape*j.MaxBytes) + resultBytes
	if err = w.jobs.Encode(j); err == nil {
		err = w.results.Decode(&r)
	}
	if !killer.Stop() {
		return r, errSlow
	}
	if err != nil && w.bound.N <= 0 {
		return r, errLong
	}
	return r, err
}

// end kills the process and reaps it. It reports whether a signal ended the process, this one
// or an earlier one.
func (w *worker) end() (bySignal bool) {
	_ = w.command.Process.Kill() // fails if the process has ended
	_ = w.in.Close()
	_ = w.command.Wait()
	status, ok := w.command.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}
