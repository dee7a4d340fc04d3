package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"reel/client"
	"reel/protocol"
)

// ErrGenerator says that a generator that was to be measured did not serve.
var ErrGenerator = errors.New("the generator failed")

// Launch says how to start a generator.
type Launch struct {
	Path string   // of reel-generator; empty is the one beside this program, else on the path
	Args []string // beside --socket
}

// stopTime bounds how long a generator may take to stop.
const stopTime = 40 * time.Second

// Process is a generator that was started to be measured.
type Process struct {
	Started time.Time // just before exec
	socket  string
	dir     string
	cmd     *exec.Cmd
	said    *tail
	exited  chan struct{}
}

// Start starts a generator on a socket of its own. The environment's REEL_
// settings are not passed on: the flags are all of them. When ctx ends, it is
// asked to stop. Errors: ErrOptions where there is no generator to start.
func (l Launch) Start(ctx context.Context) (*Process, error) {
	path, err := l.find()
	if err != nil {
		return nil, fmt.Errorf("%w: no generator to start: %w: give --generator PATH", ErrOptions, err)
	}
	dir, err := os.MkdirTemp("", "reel-bench-") // short: a socket's path may have 107 bytes
	if err != nil {
		return nil, err
	}
	p := &Process{dir: dir, socket: filepath.Join(dir, "generator.sock"), said: &tail{}, exited: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, path, append([]string{"--socket", p.socket}, l.Args...)...)
	p.cmd.Stderr, p.cmd.Env = p.said, withoutSettings(os.Environ())
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTime
	p.Started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrGenerator, err), os.RemoveAll(dir))
	}
	go func() {
		_ = p.cmd.Wait() // what it said tells more than its exit code
		close(p.exited)
	}()
	return p, nil
}

func (l Launch) find() (string, error) {
	if l.Path != "" {
		return exec.LookPath(l.Path)
	}
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "reel-generator")); err == nil {
			return path, nil
		}
	}
	return exec.LookPath("reel-generator")
}

// withoutSettings is env without the generator's settings.
func withoutSettings(env []string) (rest []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, "REEL_") {
			rest = append(rest, v)
		}
	}
	return rest
}

// pollTime is how often a generator that starts is asked whether it serves: so
// exact is the time of its welcome.
const pollTime = 2 * time.Millisecond

// use starts a generator, does work on it, has its status noted while it lives, and
// stops it.
func (l Launch) use(ctx context.Context, work func(*Process, *client.Client) error, note func(*client.Status)) (*client.Status, error) {
	p, err := l.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	c, err := p.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := work(p, c); err != nil {
		return nil, err
	}
	status, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	note(status)
	return status, nil
}

// Dial waits until the generator serves and connects. Errors: ErrGenerator with
// what it said where it ended, and ctx's.
func (p *Process) Dial(ctx context.Context) (*client.Client, error) {
	for {
		c, err := client.Dial(ctx, client.Options{Socket: p.socket})
		if err == nil {
			return c, nil
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%w: %s", ErrGenerator, p.said)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollTime):
		}
		var said *client.Error
		if errors.As(err, &said) && said.Code != protocol.CodeLoading {
			return nil, fmt.Errorf("%w: %w", ErrGenerator, err)
		}
	}
}

// Stop ends the generator and waits for its end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // one that has ended needs none
	select {
	case <-p.exited:
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	_ = os.RemoveAll(p.dir) // in the folder for such files
}

// tail keeps the last of what is written to it. Wait has ended before it is read.
type tail struct{ b []byte }

const tailBytes = 2000

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if extra := len(t.b) - tailBytes; extra > 0 {
		t.b = t.b[extra:]
	}
	return len(b), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.b)) }
