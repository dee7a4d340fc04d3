package chat

import (
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// What the worker's process may take of memory, in bytes.
const (
	maxData  = 512 << 20 // stacks and what Go takes for itself included; past it Go ends the process
	softData = 256 << 20 // from here on Go collects as often as it must
)

// Serve is the worker's process: it reads jobs from in and writes results to
// out, until in ends. It confines the whole process first.
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
			r = template.do(j)
		}
		if err := results.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// confine bounds what a template can make this process take, and do.
func confine() error {
	debug.SetMemoryLimit(softData)
	for which, most := range map[int]uint64{unix.RLIMIT_DATA: maxData, unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0} {
		if which == unix.RLIMIT_DATA && underRace {
			continue
		}
		if err := unix.Setrlimit(which, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	return nil
}

// read hands out jobs. When in ends the generator has gone, and the process goes
// too, whatever the template does.
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

// do renders the messages of a job.
func (c *compiled) do(j job) result {
	if c == nil {
		return failed(ErrTemplate)
	}
	b := bounded{most: j.Most}
	if err := c.render(&b, j.Messages, true, time.Now()); err != nil {
		return failed(err)
	}
	return result{Text: string(b.text)}
}

// bounded takes text up to a bound.
type bounded struct {
	text []byte
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > b.most {
		return 0, ErrTooLong
	}
	b.text = append(b.text, p...)
	return len(p), nil
}
