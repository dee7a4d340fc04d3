//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/client"
)

const patience = 3 * time.Minute // how long a test waits before it fails

// output collects a process's output; it may be read at the same time.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is one run of a program.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr *output
	exited         chan struct{}
}

// prepare makes a process of one of Reel's programs. It does not inherit the environment variables that Reel reads.
func prepare(t *testing.T, name string, args ...string) *process {
	p := &process{t: t, cmd: exec.Command(filepath.Join(binaries, name), args...),
		stdout: &output{}, stderr: &output{}, exited: make(chan struct{})}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "REEL_") && !strings.HasPrefix(v, "XDG_RUNTIME_DIR=") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, "GORACE=atexit_sleep_ms=0")
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	return p
}

// within lets a shell start the process after a command that sets a limit.
func (p *process) within(narrow string) *process {
	p.cmd.Args = append([]string{"sh", "-c", narrow + ` && exec "$0" "$@"`, p.cmd.Path}, p.cmd.Args[1:]...)
	p.cmd.Path = "/bin/sh"
	return p
}

// start starts the process, and kills it when the test ends.
func (p *process) start() *process {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // wait reads the exit code
		close(p.exited)
	}()
	p.t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.exited })
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the end and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("%s still runs\n%s", p.cmd.Path, p.stderr.String())
		return 0
	}
}

// wantExit waits for the end and checks the exit code.
func (p *process) wantExit(code int) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Fatalf("%v: exit %d, want %d\nstderr: %s", p.cmd.Args[1:], got, code, p.stderr.String())
	}
}

// generator is a reel-generator process that serves on a socket of its own.
type generator struct {
	*process
	socket string
	limits client.Limits
}

// tempDir makes a directory with a short path, as sockets need, that other users may enter.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "reel")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serve starts a generator and waits until it serves.
func serve(t *testing.T, args ...string) *generator {
	t.Helper()
	return serveOn(t, filepath.Join(tempDir(t), "generator.sock"), args...)
}

// serveOn does the same on a given socket.
func serveOn(t *testing.T, socket string, args ...string) *generator {
	t.Helper()
	args = append([]string{"--socket", socket, "--log-level", "warn", "--device", device}, args...)
	g := &generator{process: prepare(t, "reel-generator", args...), socket: socket}
	g.start()
	g.awaited()
	return g
}

// awaited waits until g serves.
func (g *generator) awaited() {
	g.t.Helper()
	// A client does not wait if the socket's directory is missing.
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Dir(g.socket)); err == nil {
			break
		}
	}
	c := g.client()
	g.limits = c.Limits()
	c.Close()
}

// client dials the generator.
func (g *generator) client() *client.Client {
	g.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	c, err := client.Dial(ctx, client.Options{Socket: g.socket, Wait: patience})
	if err != nil {
		g.t.Fatalf("%v\n%s", err, g.stderr.String())
	}
	g.t.Cleanup(c.Close)
	return c
}

// reel prepares a client process for the generator.
func (g *generator) reel(args ...string) *process {
	return prepare(g.t, "reel", append([]string{"--socket", g.socket}, args...)...)
}

// status returns the generator's status, without the connection that asks for it.
func (g *generator) status() client.Status {
	g.t.Helper()
	s, err := client.ReadStatus(context.Background(), client.Options{Socket: g.socket, Wait: patience})
	if err != nil {
		g.t.Fatal(err)
	}
	s.Connections--
	return *s
}

// eventually waits until ok returns true; no event announces it.
func (g *generator) eventually(what string, ok func() bool) {
	g.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatalf("still waiting for: %s; status %+v", what, g.status())
		}
	}
}

// quiet waits until no connection, no request and no page in use is left.
func (g *generator) quiet() {
	g.t.Helper()
	g.eventually("no connection, request or page is left", func() bool {
		s := g.status()
		return s.Connections == 0 && s.Requests.Running+s.Requests.Waiting == 0 && s.KV.Used == 0
	})
}

// kilobytes returns a field of /proc/PID/status in kB.
func (g *generator) kilobytes(field string) int {
	g.t.Helper()
	n, err := kilobytesOf(g.cmd.Process.Pid, field)
	must(g.t, err)
	return n
}

// kilobytesOf returns a field of /proc/PID/status in kB. A process that has ended and is not waited for has none of
// memory.
func kilobytesOf(pid int, field string) (int, error) {
	all, err := os.ReadFile(proc(pid, "status"))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(all), field+":")
	if !found {
		return 0, fmt.Errorf("process %d has no %s", pid, field)
	}
	return strconv.Atoi(strings.Fields(rest)[0])
}

// proc returns the path of a file of /proc/PID.
func proc(pid int, file string) string { return filepath.Join("/proc", strconv.Itoa(pid), file) }

// entries returns the number of files in a folder of /proc/PID: fd or task.
func (g *generator) entries(folder string) int {
	g.t.Helper()
	n, err := entriesOf(g.cmd.Process.Pid, folder)
	must(g.t, err)
	return n
}

// entriesOf returns the number of files in a folder of /proc/PID.
func entriesOf(pid int, folder string) (int, error) {
	list, err := os.ReadDir(proc(pid, folder))
	return len(list), err
}

// goroutines ends the generator with SIGQUIT, on which Go prints all goroutines, and returns the number of those that
// are not the runtime's own.
func (g *generator) goroutines() int {
	g.t.Helper()
	g.eventually("the weights have been read again, in the background", func() bool { return g.status().Identity != "" })
	descriptors, same := -1, 0
	g.eventually("the connection that asked for the status has ended", func() bool { // it has several goroutines
		if n := g.entries("fd"); n != descriptors {
			descriptors, same = n, 0
		}
		same++
		return same == 20
	})
	g.signal(syscall.SIGQUIT)
	g.wantExit(2)
	n := 0
	for _, stack := range strings.Split(g.stderr.String(), "\n\ngoroutine ")[1:] {
		// The stack of the thread that took the signal, number 0, is listed only if no goroutine was on it.
		if !strings.Contains(stack, "created by runtime.") && !strings.HasPrefix(stack, "0 ") {
			n++
		}
	}
	return n
}

// cpu returns the processor time that the generator has used, to a hundredth of a second.
func (g *generator) cpu() time.Duration {
	g.t.Helper()
	all, err := os.ReadFile(proc(g.cmd.Process.Pid, "stat"))
	if err != nil {
		g.t.Fatal(err)
	}
	fields := strings.Fields(string(all[bytes.LastIndexByte(all, ')')+1:]))
	user, err1 := strconv.Atoi(fields[11]) // utime, the 14th field of proc_pid_stat(5)
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		g.t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
