//go:build linux

package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/unixsocket"
)

// supervisor acts as a service manager: it receives notifications, and may hold the socket that clients connect to.
type supervisor struct {
	t      *testing.T
	dir    string
	socket string
	notify *net.UnixConn
	listen *os.File    // the socket; nil if the generator makes its own
	heard  chan string // notifications
}

// supervise makes a supervisor without a socket for clients.
func supervise(t *testing.T) *supervisor {
	t.Helper()
	dir := tempDir(t)
	s := &supervisor{t: t, dir: dir, socket: filepath.Join(dir, "generator.sock"), heard: make(chan string, 10000)}
	var err error
	s.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = s.notify.Close() })
	go s.hear()
	return s
}

// hear receives notifications.
func (s *supervisor) hear() {
	message := make([]byte, 4096)
	for {
		n, err := s.notify.Read(message)
		if err != nil {
			return
		}
		s.heard <- string(message[:n])
	}
}

// open makes the socket that the supervisor hands to its generators.
func (s *supervisor) open() {
	s.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket, Net: "unix"})
	must(s.t, err)
	l.SetUnlinkOnClose(false)
	s.listen, err = l.File()
	must(s.t, err)
	must(s.t, l.Close()) // the copy in s.listen goes on
	s.t.Cleanup(func() { _ = s.listen.Close() })
}

// start starts a generator under the supervisor. A shell sets LISTEN_PID to the generator's process id, as a service
// manager does.
func (s *supervisor) start(program string, env []string, args ...string) *generator {
	s.t.Helper()
	args = append([]string{"--device", device, "--log-level", "warn"}, args...)
	p := prepare(s.t, program, args...)
	p.cmd.Env = append(append(p.cmd.Env, "NOTIFY_SOCKET="+filepath.Join(s.dir, "notify")), env...)
	if s.listen != nil {
		p.cmd.ExtraFiles = []*os.File{s.listen}
		script := `export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" "$@"`
		p.cmd.Args = append([]string{"sh", "-c", script, p.cmd.Path}, args...)
		sh, err := exec.LookPath("sh")
		must(s.t, err)
		p.cmd.Path = sh
	} else {
		p.cmd.Args = append(p.cmd.Args, "--socket", s.socket)
	}
	return &generator{process: p.start(), socket: s.socket}
}

// until waits for a notification with this line, and returns all lines up to it.
func (s *supervisor) until(g *generator, line string) (lines []string) {
	s.t.Helper()
	for {
		select {
		case message := <-s.heard:
			lines = append(lines, strings.Split(message, "\n")...)
			if strings.Contains("\n"+message+"\n", "\n"+line+"\n") {
				return lines
			}
		case <-g.exited:
			s.t.Fatalf("the generator ended before %s: %q\n%s", line, lines, g.stderr.String())
		case <-time.After(patience):
			s.t.Fatalf("no %s: %q\n%s", line, lines, g.stderr.String())
		}
	}
}

// A generator notifies its service manager of its progress, asks for the time that its start takes, and is ready
// only after it has sampled a token.
func TestReadyAfterAToken(t *testing.T) {
	s := supervise(t)
	g := s.start("reel-generator", nil)
	lines := s.until(g, "READY=1")
	if steps := g.status().Steps; steps.Tokens < 1 {
		t.Errorf("ready before a token: %+v", steps)
	}
	ready := "STATUS=ready: serves reel-tiny on " + device
	for _, want := range []string{"STATUS=capturing graphs, ", ready, "EXTEND_TIMEOUT_USEC="} {
		if !strings.Contains("\n"+strings.Join(lines, "\n"), "\n"+want) {
			t.Errorf("there is no notification %s…: %q", want, lines)
		}
	}
	g.signal(syscall.SIGTERM)
	s.until(g, "STOPPING=1")
	g.wantExit(0)
}

// An idle generator sends heartbeats to the watchdog. One with a hanging device does not, although its socket
// answers. SIGABRT, which the manager then sends, ends it.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	s := supervise(t)
	const every = 200 * time.Millisecond
	g := s.start("reel-generator-fault", []string{"WATCHDOG_USEC=200000"})
	s.until(g, "READY=1")
	for range 8 {
		s.until(g, "WATCHDOG=1")
	}
	if text := g.stderr.String(); text != "" {
		t.Fatalf("stderr is %s", text)
	}
	g.signal(syscall.SIGUSR2)
	g.eventually("the device hangs", func() bool { return strings.Contains(g.stderr.String(), "hangs") })
	time.Sleep(every) // a heartbeat of an earlier step may be on its way
	for len(s.heard) > 0 {
		<-s.heard
	}
	for range 5 {
		time.Sleep(every)
		if state := g.status().State; state != "ready" {
			t.Errorf("the socket answers %q", state)
		}
	}
	if len(s.heard) > 0 {
		t.Errorf("%d heartbeats of an engine that hangs: %s", len(s.heard), <-s.heard)
	}
	g.signal(syscall.SIGABRT)
	g.wantExit(2)
}

// The watchdog gets heartbeats while requests run without a pause and the engine is never idle.
func TestWatchdogWhileGenerating(t *testing.T) {
	s := supervise(t)
	g := s.start("reel-generator", []string{"WATCHDOG_USEC=200000"})
	s.until(g, "READY=1")
	c := g.client()
	var group sync.WaitGroup
	var enough atomic.Bool
	for range 2 { // while one ends, the other runs
		group.Go(func() {
			for !enough.Load() {
				if r := ask(c, greedy([]int32{1, 2, 3}, 64)); r.Err != "" {
					t.Error(r.Err)
					return
				}
			}
		})
	}
	for range 8 {
		s.until(g, "WATCHDOG=1")
	}
	enough.Store(true)
	group.Wait()
	g.signal(syscall.SIGTERM)
	g.wantExit(0)
}

// A service manager's socket outlives generators. A client that connects while there is none is served by the next.
func TestSocketSurvivesARestart(t *testing.T) {
	t.Parallel()
	s := supervise(t)
	s.open()
	before, err := os.Lstat(s.socket)
	must(t, err)
	waiting := s.client("ROMEO:") // before the first generator
	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGINT} {
		g := s.start("reel-generator", nil)
		s.until(g, "READY=1")
		waiting.wantExit(0)
		if waiting.stdout.String() == "" {
			t.Error("a client that waited got no text")
		}
		g.works()
		// Of another path, such as the default one, another generator may hold the lock, and this one would wait for it.
		if _, err := os.Lstat(unixsocket.LockPath(s.socket)); err != nil {
			t.Errorf("the lock is not that of the inherited socket: %v", err)
		}
		g.signal(end)
		g.wait()
		waiting = s.client("ROMEO:")
		if after, err := os.Lstat(s.socket); err != nil || !os.SameFile(before, after) {
			t.Fatalf("after %v it is another socket: %v", end, err)
		}
	}
	must(t, waiting.cmd.Process.Kill())
}

// client starts a client that waits for a generator.
func (s *supervisor) client(prompt string) *process {
	s.t.Helper()
	return prepare(s.t, "reel", "--socket", s.socket, "--wait", "60s", "--max-tokens", "8", prompt).start()
}

// A generator takes a manager's sockets only if LISTEN_PID is its own process id. It refuses a socket without a path.
func TestForeignSocketsAreLeft(t *testing.T) {
	s := supervise(t)
	g := s.start("reel-generator", []string{"LISTEN_PID=1", "LISTEN_FDS=1"})
	s.until(g, "READY=1")
	g.works()
	g.signal(syscall.SIGTERM)
	g.wantExit(0)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	s.listen, err = l.(*net.TCPListener).File()
	must(t, err)
	defer s.listen.Close()
	g = s.start("reel-generator", nil)
	g.wantExit(78)
	if text := g.stderr.String(); !strings.Contains(text, "ListenStream") {
		t.Errorf("stderr is %s", text)
	}
}
