//go:build linux && cuda

// Package gpu tests the generator on a GPU as a service manager runs it: the real programs in the folder bin, signals,
// and a device that fails.
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

	"reel.internal/reel/client"
)

// patience is how long a test waits before it reports a deadlock.
const patience = 30 * time.Second

// generator is one run of a generator program.
type generator struct {
	t      testing.TB
	cmd    *exec.Cmd
	socket string
	stderr lockedBuffer
	exited chan struct{}
}

// lockedBuffer collects a process's output; it may be read at the same time.
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

// start starts a program in bin on the first GPU, and kills it when the test ends.
func start(t testing.TB, program string, args ...string) *generator {
	t.Helper()
	return startOn(t, filepath.Join(t.TempDir(), "g.sock"), program, args...)
}

// startOn does the same on a given socket.
func startOn(t testing.TB, socket, program string, args ...string) *generator {
	t.Helper()
	g := prepare(t, socket, program, args...)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.started()
	return g
}

// prepare makes a generator without starting it.
func prepare(t testing.TB, socket, program string, args ...string) *generator {
	args = append([]string{"--device", "cuda", "--socket", socket}, args...)
	cmd := exec.Command(filepath.Join("../../../bin", program), args...)
	g := &generator{t: t, cmd: cmd, socket: socket, exited: make(chan struct{})}
	g.cmd.Stderr = &g.stderr
	return g
}

// started follows a process that was started, and kills it when the test ends.
func (g *generator) started() {
	go func() {
		_ = g.cmd.Wait() // end reads the exit code
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

// stacks ends a generator that does not answer, and fails the test with its goroutines' stacks.
func (g *generator) stacks() {
	g.t.Helper()
	g.signal(syscall.SIGQUIT)
	<-g.exited
	g.t.Errorf("%s", g.stderr.String())
}

// stop ends a serving generator and checks its exit code.
func (g *generator) stop() {
	g.t.Helper()
	g.signal(syscall.SIGTERM)
	if code := g.end(); code != 0 {
		g.t.Errorf("exit code %d\n%s", code, g.stderr.String())
	}
}

// dial waits until the generator serves, and returns a client. On failure it returns nil.
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

// status returns the generator's status, also while it loads.
func (g *generator) status() *client.Status {
	g.t.Helper()
	s, err := client.ReadStatus(context.Background(), client.Options{Socket: g.socket, Wait: patience})
	if err != nil {
		g.t.Errorf("%v\n%s", err, g.stderr.String())
		return &client.Status{}
	}
	return s
}

// capturing waits until the generator captures graphs or is ready.
func (g *generator) capturing() {
	g.t.Helper()
	for s := g.status(); s.Progress < 0.8 && !g.t.Failed(); s = g.status() {
		time.Sleep(5 * time.Millisecond)
	}
}

// stream runs a greedy completion of n tokens; each is called with every token's time.
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
