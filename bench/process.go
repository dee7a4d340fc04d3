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

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// ErrGenerator means that a generator to be measured did not serve.
var ErrGenerator = errors.New("the generator failed")

// Launch describes how to start a generator.
type Launch struct {
	Path string   // of reel-generator; empty: beside this program, else on the path
	Args []string // in addition to --socket
}

// stopTime bounds the time that a generator may take to stop.
const stopTime = 40 * time.Second

// Process is a generator that was started for a measurement.
type Process struct {
	Started time.Time // just before exec
	Sleep   bool      // clients sleep until a token comes, in place of polling: a thread for each would be many
	socket  string
	dir     string
	cmd     *exec.Cmd
	stderr  *tail
	exited  chan struct{}
}

// Start starts a generator on a socket of its own. REEL_ settings of the environment are
// not passed on, so the flags are complete. The end of ctx stops the generator. The error
// is ErrOptions if there is no generator to start.
func (l Launch) Start(ctx context.Context) (*Process, error) {
	path, err := l.find()
	if err != nil {
		return nil, fmt.Errorf("%w: no generator to start: %w: give --generator PATH", ErrOptions, err)
	}
	dir, err := os.MkdirTemp("", "reel-bench-") // short, since a socket's path may have only 107 bytes
	if err != nil {
		return nil, err
	}
	p := &Process{
		dir: dir, socket: filepath.Join(dir, "generator.sock"), stderr: &tail{}, exited: make(chan struct{}),
	}
	p.cmd = exec.CommandContext(ctx, path, append([]string{"--socket", p.socket}, l.Args...)...)
	p.cmd.Stderr, p.cmd.Env = p.stderr, withoutSettings(os.Environ())
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTime
	p.Started = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrGenerator, err), os.RemoveAll(dir))
	}
	go func() {
		_ = p.cmd.Wait() // its messages say more than its exit code
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

// withoutSettings returns env without the generator's settings.
func withoutSettings(env []string) (rest []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, "REEL_") {
			rest = append(rest, v)
		}
	}
	return rest
}

// pollTime is the interval at which Dial tries to connect, and therefore the precision of
// the time to welcome.
const pollTime = 2 * time.Millisecond

// use starts a generator, does work on it, calls note with its status, and stops it.
func (l Launch) use(
	ctx context.Context, work func(*Process, *client.Client) error, note func(*client.Status),
) (*client.Status, error) {
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

// Dial waits until the generator serves, and connects. Errors are ErrGenerator, with the
// generator's messages if it ended, and ctx's.
func (p *Process) Dial(ctx context.Context) (*client.Client, error) {
	for {
		c, err := client.Dial(ctx, client.Options{Socket: p.socket, Spin: !p.Sleep})
		if err == nil {
			return c, nil
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("%w: %s", ErrGenerator, p.stderr)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollTime):
		}
		var reported *client.Error
		if errors.As(err, &reported) && reported.Code != protocol.CodeLoading {
			return nil, fmt.Errorf("%w: %w", ErrGenerator, err)
		}
	}
}

// Stop stops the generator and waits for its end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended already
	select {
	case <-p.exited:
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	_ = os.RemoveAll(p.dir) // leftovers are in the system's directory for temporary files
}

// tail keeps the end of the bytes written to it. Read it only after Wait.
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
