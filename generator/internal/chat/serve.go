package chat

import (
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/marked"
)

// Bounds on the worker process's memory, in bytes.
const (
	maxData  = 512 << 20 // RLIMIT_DATA, including stacks and Go's runtime; beyond it Go ends the process
	softData = 256 << 20 // Go's memory limit: beyond it Go collects garbage more often
)

// Serve is the worker process's main function: it reads jobs from in and writes results to
// out until in ends. First it sets limits on the whole process.
func Serve(in io.Reader, out io.Writer) error {
	if err := confine(); err != nil {
		return err
	}
	jobs := make(chan job)
	go read(in, jobs)
	results := json.NewEncoder(out)
	var template *compiled
	for j := range jobs {
		var r result
		if j.Source != nil {
			template, r = readSource(*j.Source)
		} else {
			r = template.run(j)
		}
		if err := results.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// confine limits this process's memory and its writing of files.
func confine() error {
	debug.SetMemoryLimit(softData)
	for resource, most := range map[int]uint64{unix.RLIMIT_DATA: maxData, unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0} {
		if resource == unix.RLIMIT_DATA && underRace {
			continue
		}
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	return nil
}

// read sends jobs to the channel. At the end of in, the generator has ended, and read ends
// the process, even while a template runs.
func read(in io.Reader, jobs chan<- job) {
	for d := json.NewDecoder(in); ; {
		var j job
		if err := d.Decode(&j); err != nil {
			os.Exit(0)
		}
		jobs <- j
	}
}

func readSource(s Source) (*compiled, result) {
	c, err := compile(s)
	if err != nil {
		return nil, failed(err)
	}
	return c, result{}
}

// run renders the messages of a job.
func (c *compiled) run(j job) result {
	if c == nil {
		return failed(ErrTemplate)
	}
	var variables map[string]any
	if err := msgpack.Unmarshal(j.Variables, &variables); err != nil {
		return failed(err)
	}
	b := boundedBuffer{maxBytes: j.MaxBytes}
	if err := c.render(&b, j.Messages, variables, true, time.Now()); err != nil {
		return failed(err)
	}
	return succeeded(marked.Trusted(string(b.text)))
}

// boundedBuffer holds at most maxBytes bytes of text.
type boundedBuffer struct {
	text     []byte
	maxBytes int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > b.maxBytes {
		return 0, ErrTooLong
	}
	b.text = append(b.text, p...)
	return len(p), nil
}
