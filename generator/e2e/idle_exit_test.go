//go:build linux

package e2e

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// wakes is the number of wakes of a test.
const wakes = 20

// pending reports whether a connection waits at the supervisor's socket. That makes a service manager start the
// generator.
func (s *supervisor) pending() bool {
	s.t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.listen.Fd()), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			must(s.t, err)
			return n > 0
		}
	}
}

// awaitPending waits until a connection wakes the generator.
func (s *supervisor) awaitPending() {
	s.t.Helper()
	for until := time.Now().Add(patience); !s.pending(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			s.t.Fatal("nobody connects")
		}
	}
}

// A generator that nobody asks ends, and each next request starts it again and is served.
func TestIdleExit(t *testing.T) {
	t.Parallel()
	s := supervise(t)
	s.open()
	for i := range wakes {
		asked := s.client("ROMEO:")
		s.awaitPending()
		g := s.start("reel-generator", nil, "--socket", s.socket, "--idle-exit", "300ms")
		asked.wantExit(0)
		if asked.stdout.String() == "" {
			t.Errorf("wake %d: no text", i)
		}
		g.wantExit(0)
		if r := client.Record(client.Options{Socket: s.socket}); r == nil || r.State != protocol.StateSleeping {
			t.Fatalf("wake %d: the record is %+v", i, r)
		}
	}
}

// No request is refused at the time at which a generator goes to sleep: either it or the next one serves it.
func TestNoRequestIsLostAtSleep(t *testing.T) {
	t.Parallel()
	s := supervise(t)
	s.open()
	stop, stopped := make(chan struct{}), make(chan struct{})
	var starts atomic.Int32
	go func() { // the service manager
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if s.pending() {
				starts.Add(1)
				s.start("reel-generator", nil, "--socket", s.socket, "--idle-exit", "50ms").wait()
			}
		}
	}()
	// On a busy machine it goes to sleep later.
	for i, until := 0, time.Now().Add(patience); i < wakes || starts.Load() < 2 && time.Now().Before(until); i++ {
		c, err := client.Dial(t.Context(), client.Options{Socket: s.socket, Wait: patience})
		must(t, err)
		if r := ask(c, greedy([]int32{1, 2, 3}, 4)); r.Err != "" {
			t.Errorf("request %d: %s", i, r.Err)
		}
		c.Close()
		around := 140 + 2*i + 100*max(0, i-wakes) // around the time of sleep
		time.Sleep(time.Duration(around) * time.Millisecond)
	}
	close(stop)
	<-stopped
	if n := starts.Load(); n < 2 {
		t.Errorf("%d starts: it never slept", n)
	}
}

// No command that watches a sleeping generator connects to it.
func TestWatchingDoesNotWake(t *testing.T) {
	t.Parallel()
	s := supervise(t)
	s.open()
	g := s.start("reel-generator", nil, "--socket", s.socket, "--idle-exit", "200ms")
	g.wantExit(0)
	for name, args := range map[string][]string{
		"reel":           {"status", "--wait", "5s"},
		"reel top":       {"top", "-n", "2", "--interval", "50ms"},
		"reel-generator": {"doctor", "--device", "host"},
	} {
		program, _, _ := strings.Cut(name, " ")
		p := prepare(t, program, append(args, "--socket", s.socket)...).start()
		p.wantExit(0)
		if out := p.stdout.String(); !strings.Contains(out, "sleep") {
			t.Errorf("%s prints %s", args[0], out)
		}
		if s.pending() {
			t.Fatalf("%s wakes it", args[0])
		}
	}
}

// Open connections and requests for status don't keep a generator awake. A connection that is open then gets draining.
func TestOpenConnectionsAndStatusDoNotCount(t *testing.T) {
	t.Parallel()
	s := supervise(t)
	s.open()
	g := s.start("reel-generator", nil, "--socket", s.socket, "--idle-exit", "500ms")
	s.until(g, "READY=1")
	c := g.client()
	if r := ask(c, greedy([]int32{1, 2, 3}, 4)); r.Err != "" {
		t.Fatal(r.Err)
	}
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := c.Status(context.Background()); err != nil {
			var told *client.Error
			if !errors.As(err, &told) || told.Code != protocol.CodeDraining {
				t.Errorf("the open connection ends with %v", err)
			}
			break
		}
		if time.Now().After(until) {
			t.Fatal("requests for status keep it awake")
		}
	}
	g.wantExit(0)
}

// Requests keep a generator awake.
func TestRequestsKeepAwake(t *testing.T) {
	t.Parallel()
	s := supervise(t)
	s.open()
	g := s.start("reel-generator", nil, "--socket", s.socket, "--idle-exit", "1s")
	s.until(g, "READY=1")
	c := g.client()
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if r := ask(c, greedy([]int32{1, 2, 3}, 4)); r.Err != "" {
			t.Fatal(r.Err)
		}
	}
	g.wantExit(0)
}

// Without a service manager's socket nobody would start the generator again.
func TestIdleExitNeedsAManager(t *testing.T) {
	s := supervise(t)
	g := s.start("reel-generator", nil, "--idle-exit", "10m")
	g.wantExit(78)
	if text := g.stderr.String(); !strings.Contains(text, "--idle-exit 10m0s: no service manager passes a socket") {
		t.Errorf("stderr is %s", text)
	}
	s.open()
	g = s.start("reel-generator", nil, "--socket", s.socket+"2", "--idle-exit", "10m")
	g.wantExit(78)
	if text := g.stderr.String(); !strings.Contains(text, "set --socket to it") {
		t.Errorf("stderr is %s", text)
	}
}

// The unit allows a wake every 15 s for ever.
func TestUnitAllowsWakes(t *testing.T) {
	unit, err := os.ReadFile("../../systemd/reel-generator.service")
	must(t, err)
	number := func(pattern string) int {
		m := regexp.MustCompile(pattern).FindSubmatch(unit)
		if m == nil {
			t.Fatalf("the unit has no %s", pattern)
		}
		n, err := strconv.Atoi(string(m[1]))
		must(t, err)
		return n
	}
	minutes, burst := number(`(?m)^StartLimitIntervalSec=(\d+)min$`), number(`(?m)^StartLimitBurst=(\d+)$`)
	if needs := minutes*60/15 + 1; burst < needs {
		t.Errorf("%d starts in %d min, a wake every 15 s takes %d", burst, minutes, needs)
	}
}
