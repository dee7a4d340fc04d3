//go:build linux && cuda

// Package gpu tries the generator on a GPU as a service manager runs it: the
// real programs, from the folder bin, signals, and a device that fails.
package gpu

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"reel/client"
)

// patience is after how long a test calls what it waits for a deadlock.
const patience = 30 * time.Second

// generator is a process that serves, or has served.
type generator struct {
	t      testing.TB
	cmd    *exec.Cmd
	socket string
	stderr lockedBuffer
	exited chan struct{}
}

// lockedBuffer takes what a process writes while others read it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a program of bin on the first GPU, until the test ends.
func start(t testing.TB, program string, args ...string) *generator {
	t.Helper()
	return startOn(t, filepath.Join(t.TempDir(), "g.sock"), program, args...)
}

func startOn(t testing.TB, socket, program string, args ...string) *generator {
	t.Helper()
	g := prepare(t, socket, program, args...)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.started()
	return g
}

// prepare is a generator that has not been started.
func prepare(t testing.TB, socket, program string, args ...string) *generator {
	args = append([]string{"--device", "cuda", "--socket", socket}, args...)
	g := &generator{t: t, cmd: exec.Command(filepath.Join("../../../bin", program), args...), socket: socket, exited: make(chan struct{})}
	g.cmd.Stderr = &g.stderr
	return g
}

// started waits for the end of a process that was started, and ends it after the test.
func (g *generator) started() {
	go func() {
		_ = g.cmd.Wait() // the exit code is asked for by end
		close(g.exited)
	}()
	g.t.Cleanup(func() { _ = g.cmd.Process.Kill(); <-g.exited })
}

func (g *generator) signal(s syscall.Signal) {
	g.t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		g.t.Errorf("%v: %v\n%s", s, err, g.stderr.String())
	}
}

// end waits for the end of the process and returns the exit code.
func (g *generator) end() int {
	g.t.Helper()
	select {
	case <-g.exited:
		return g.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		g.t.Error("the generator does not end")
		g.stacks()
		return -1
	}
}

// stacks ends a generator that does not answer, and shows where it is.
func (g *generator) stacks() {
	g.t.Helper()
	g.signal(syscall.SIGQUIT)
	<-g.exited
	g.t.Errorf("%s", g.stderr.String())
}

// stop ends a generator that serves.
func (g *generator) stop() {
	g.t.Helper()
	g.signal(syscall.SIGTERM)
	if code := g.end(); code != 0 {
		g.t.Errorf("exit code %d\n%s", code, g.stderr.String())
	}
}

// dial waits until the generator serves. Without one it returns nil.
func (g *generator) dial() *client.Client {
	g.t.Helper()
	c, err := client.Dial(context.Background(), client.Options{Socket: g.socket, Wait: patience})
	if err != nil {
		g.t.Errorf("%v\n%s", err, g.stderr.String())
		return nil
	}
	g.t.Cleanup(c.Close)
	return c
}

// status is what the generator says of itself, also while it loads.
func (g *generator) status() *client.Status {
	g.t.Helper()
	s, err := client.ReadStatus(context.Background(), client.Options{Socket: g.socket, Wait: patience})
	if err != nil {
		g.t.Errorf("%v\n%s", err, g.stderr.String())
		return &client.Status{}
	}
	return s
}

// capturing waits until the generator captures, or is ready.
func (g *generator) capturing() {
	g.t.Helper()
	for s := g.status(); s.Progress < 0.8 && !g.t.Failed(); s = g.status() {
		time.Sleep(5 * time.Millisecond)
	}
}

// stream runs a greedy completion of n tokens; each is told of its time.
func stream(c *client.Client, prompt, n int, each func(time.Time)) (ids []int32, err error) {
	if c == nil {
		return nil, errors.New("there is no generator")
	}
	tokens := make([]int32, prompt)
	for i := range tokens {
		tokens[i] = int32(2 + i*31%200)
	}
	request := client.Request{Tokens: tokens, MaxTokens: &n, Temperature: new(0.0), IgnoreEOS: true}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for t, err := range c.Generate(ctx, request) {
		if err != nil {
			return ids, err
		}
		ids = append(ids, t.Token)
		each(time.Now())
	}
	if len(ids) != n {
		err = errors.New("the completion has too few tokens")
	}
	return ids, err
}
