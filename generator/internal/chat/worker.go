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

	"reel/protocol"
)

// job is what the worker's process is asked: first to read a template, then to
// render messages. Both ways go as JSON, one value after another.
type job struct {
	Source   *Source            `json:"source,omitempty"`
	Messages []protocol.Message `json:"messages,omitempty"`
	Most     int                `json:"most"` // bytes of the text
}

// result is the answer to a job.
type result struct {
	Text  string `json:"text"`
	Kind  string `json:"kind,omitempty"` // of the error: a key of kinds
	Cause string `json:"cause,omitempty"`
}

var kinds = map[string]error{"template": ErrTemplate, "refused": ErrRefused, "long": ErrTooLong}

// err is the error that r stands for.
func (r result) err() error {
	if r.Kind == "" {
		return nil
	}
	return workerError{kinds[r.Kind], r.Cause}
}

// workerError has the text that the error had in the worker's process.
type workerError struct {
	kind error
	text string
}

func (e workerError) Error() string { return e.text }
func (e workerError) Unwrap() error { return e.kind }

// failed is the result of an error.
func failed(err error) result {
	for kind, is := range kinds {
		if errors.Is(err, is) {
			return result{Kind: kind, Cause: err.Error()}
		}
	}
	return result{Kind: "template", Cause: fmt.Sprintf("%v: %v", ErrTemplate, err)}
}

var (
	// errSlow is a worker that was killed because its time was over.
	errSlow = errors.New("too slow")
	// errKilled is a worker that a signal of somebody else ended, such as the system's
	// when memory is short. What a template does itself never ends in a signal: Go
	// exits when memory or stack run out.
	errKilled = errors.New("its process was killed")
	// errLong is an answer of more bytes than it may have.
	errLong = errors.New("the answer is too long")
)

// lost reports whether err is that of a pipe to a process that is no more.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE)
}

// worker is the process that runs a template.
type worker struct {
	command *exec.Cmd
	in      io.WriteCloser
	jobs    *json.Encoder
	bound   *io.LimitedReader // over what it says
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

// answerBytes is what an answer has beside its text, which JSON may write six
// times as long.
const answerBytes = 64 << 10

// ask waits for the answer to j. Where the time is over it kills the process.
func (w *worker) ask(j job, limit time.Duration) (r result, err error) {
	killer := time.AfterFunc(limit, func() { _ = w.command.Process.Kill() })
	w.bound.N = int64(6*j.Most) + answerBytes
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

// end kills the process and reaps it. It reports whether a signal ended it; where the
// process had ended before, that is the signal that did.
func (w *worker) end() (bySignal bool) {
	_ = w.command.Process.Kill() // it may have ended
	_ = w.in.Close()
	_ = w.command.Wait()
	status, ok := w.command.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}
