//go:build linux

package e2e

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/protocol"
)

// drain sends SIGTERM and waits until new requests are refused. The socket is removed just after that.
func (g *generator) drain() {
	g.t.Helper()
	g.signal(syscall.SIGTERM)
	gone := func() bool { _, err := os.Lstat(g.socket); return os.IsNotExist(err) }
	for end := time.Now().Add(patience); !gone(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatal("the socket is still there")
		}
	}
}

// After SIGTERM new requests and connections are refused, running requests finish, idle connections delay nothing,
// and the generator exits with 0.
func TestTerm(t *testing.T) {
	t.Parallel()
	g := serve(t)
	g.dial() // sends nothing
	g.peer() // idle
	p := g.peer()
	const running = 2
	tokens := scaled(g.limits.Context-1, 60)
	for id := range uint64(running) {
		m := g.endless(id)
		m.MaxTokens = &tokens
		p.send(m)
	}
	for run := map[uint64]bool{}; len(run) < running; { // until both run
		run[expect[*protocol.Token](p).ID] = true
	}
	g.drain()
	if _, err := net.Dial("unix", g.socket); err == nil {
		t.Error("a new connection is accepted")
	}
	p.send(g.endless(99))
	done := 0
	for refused := false; done < running || !refused; {
		msg, err := p.read()
		if err != nil {
			t.Fatalf("%d of %d finished: %v", done, running, err)
		}
		switch m := msg.(type) {
		case *protocol.Error:
			if refused = m.Code == protocol.CodeDraining && *m.ID == 99; !refused {
				t.Errorf("got %+v", m)
			}
		case *protocol.Done:
			if done++; m.FinishReason != protocol.FinishLength || m.Usage.CompletionTokens != tokens {
				t.Errorf("got %+v", m)
			}
		}
	}
	finished := time.Now()
	g.wantExit(0)
	if d := time.Since(finished); d > 10*time.Second { // a drain waits 30 s at most
		t.Errorf("it took %v to end after the last request", d)
	}
}

// A second signal ends running requests with a typed error.
func TestSecondTerm(t *testing.T) {
	g := serve(t)
	p := g.peer()
	const running = 16 // long enough
	for id := range uint64(running) {
		p.send(g.endless(id))
	}
	until(p, func(t *protocol.Token) bool { return t.ID == running-1 }) // the last in order, so all have joined
	g.drain()
	p.send(g.endless(99))
	until(p, func(e *protocol.Error) bool { return e.Code == protocol.CodeDraining })
	g.signal(syscall.SIGTERM)
	for range running {
		if e := until(p, func(*protocol.Error) bool { return true }); e.Code != protocol.CodeShutdown || e.ID == nil {
			t.Fatalf("got %+v", e)
		}
	}
	g.wantExit(1)
	if _, err := os.Lstat(g.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// SIGTERM and SIGINT end an idle generator at once. SIGHUP does not if the generator has no terminal.
func TestTermWhenIdle(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		g := serve(t)
		for range 3 {
			g.signal(syscall.SIGHUP)
		}
		g.works()
		g.signal(s)
		g.wantExit(0)
	}
}

// A killed generator leaves its socket, and the next generator replaces it.
func TestStaleSocket(t *testing.T) {
	g := serve(t)
	g.signal(syscall.SIGKILL)
	g.wait()
	if _, err := os.Lstat(g.socket); err != nil {
		t.Fatal(err)
	}
	serveOn(t, g.socket).works()
}

// A generator does not replace another's socket, nor a file.
func TestSocketsInUse(t *testing.T) {
	g := serve(t)
	second := prepare(t, "reel-generator", "--socket", g.socket).start()
	second.wantExit(78)
	if text := second.stderr.String(); !strings.Contains(text, "listens") || !strings.Contains(text, "--socket") {
		t.Errorf("stderr is %s", text)
	}
	g.works()

	dir := tempDir(t)
	file, link, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	must(t, os.WriteFile(file, []byte("kept"), 0o600))
	must(t, os.Symlink(g.socket, link))
	must(t, os.Symlink(filepath.Join(dir, "nowhere"), dangling))
	pipe, folder := filepath.Join(dir, "pipe"), filepath.Join(dir, "folder")
	must(t, syscall.Mkfifo(pipe, 0o600))
	must(t, os.Mkdir(folder, 0o700))
	for _, path := range []string{file, link, dangling, pipe, folder} {
		before, err := os.Lstat(path)
		must(t, err)
		prepare(t, "reel-generator", "--socket", path).start().wantExit(78)
		if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s was touched: %v", path, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, []byte("kept")) {
		t.Errorf("the file holds %q, %v", text, err)
	}
	g.works()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Modes do not depend on the umask. The mode of an existing directory is not changed.
func TestModes(t *testing.T) {
	for _, umask := range []int{0, 0o077} {
		old := syscall.Umask(umask)
		dir := tempDir(t)
		must(t, os.Chmod(dir, 0o711))
		g := serveOn(t, filepath.Join(dir, "new", "generator.sock"))
		syscall.Umask(old)
		for path, want := range map[string]os.FileMode{
			dir: os.ModeDir | 0o711, filepath.Dir(g.socket): os.ModeDir | 0o750, g.socket: os.ModeSocket | 0o660,
		} {
			if info, err := os.Lstat(path); err != nil || info.Mode() != want {
				t.Errorf("umask %o: %s: %v, %v, want %v", umask, path, info.Mode(), err, want)
			}
		}
	}
}
