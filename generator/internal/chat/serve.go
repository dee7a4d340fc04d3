package chat

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"
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
	variables, err := decodeVariables(j.Variables)
	if err != nil {
		return failed(err)
	}
	text, err := c.render(Request{j.Messages, j.Tools, variables, j.MaxBytes}, time.Now())
	if err != nil {
		return failed(err)
	}
	return succeeded(text)
}

// decodeVariables decodes a job's variables.
func decodeVariables(raw []byte) (variables map[string]any, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	d := msgpack.NewDecoder(bytes.NewReader(raw))
	d.UseLooseInterfaceDecoding(true) // int64, uint64 and float64 for all numbers
	err = d.Decode(&variables)
	return variables, err
}
