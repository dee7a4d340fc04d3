//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/protocol"
)

// besides starts a second program on f's socket, which waits 50 ms for the socket, and returns
// its exit code.
func (f *fixture) besides(load error, args ...string) (code int, said string) {
	f.t.Helper()
	second := newFixture(f.t)
	second.socket = f.socket
	second.program.patience = 50*time.Millisecond - flushTime - closeTime
	second.program.load = func(context.Context, config.Options, func(float64, string)) (*assembly.Loaded, error) {
		return nil, load
	}
	second.start(args...)
	code = second.wait()
	return code, second.stderr.String()
}

// drains waits until f has recorded that it drains, and listens no more.
func (f *fixture) drains() {
	f.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(f.socket); err != nil && f.record().State == protocol.StateDraining {
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("while it drains: %+v", f.record())
		}
	}
}

// takenPort returns an address with a listener.
func takenPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// A second generator never changes the first one's record. While the first listens, the
// setting is wrong and the exit code 78; while it drains, a later start can succeed and the
// exit code is 75.
func TestRecordIsTheOwners(t *testing.T) {
	f := newFixture(t)
	port, badModel := takenPort(t), errors.New("a bad model")
	frames := f.hangs()
	for end := time.Now().Add(patience); f.record().State != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("while it serves: %+v", f.record())
		}
	}
	for _, args := range [][]string{{"--metrics", port}, nil} {
		if code, said := f.besides(badModel, args...); code != failure.ExitConfig || f.record().State != "" {
			t.Errorf("%v beside one that serves: exit code %d, %s, record %+v", args, code, said, f.record())
		}
	}
	f.signals <- syscall.SIGTERM
	f.drains()
	for _, args := range [][]string{{"--metrics", port}, nil} {
		code, said := f.besides(badModel, args...)
		if code != 75 || !strings.Contains(said, "drains") || f.record().State != protocol.StateDraining {
			t.Errorf("%v beside one that drains: exit code %d, %s, record %+v", args, code, said, f.record())
		}
	}
	f.engine.finish(engine.Finish{Reason: protocol.FinishLength})
	f.read(frames)
	if code := f.wait(); code != 0 || f.record().State != "" {
		t.Errorf("exit code %d, %+v", code, f.record())
	}
}

// A generator that starts while another drains serves as soon as the other has ended.
func TestStartWaitsForDrain(t *testing.T) {
	f := newFixture(t)
	frames := f.hangs()
	f.signals <- syscall.SIGTERM
	f.drains()
	second := newFixture(t)
	second.socket = f.socket
	second.start()
	f.engine.finish(engine.Finish{Reason: protocol.FinishLength})
	f.read(frames)
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	second.connect()
	second.signals <- syscall.SIGTERM
	if code := second.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left, _ := os.ReadDir(filepath.Dir(f.socket)); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
}

// A signal that ends the wait for another's socket is a clean stop.
func TestSignalEndsWaitForSocket(t *testing.T) {
	f := newFixture(t)
	holdFile(t, f.socket+".lock")
	f.start()
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A lock on the socket's directory keeps no generator from starting.
func TestLockedDirectoryServes(t *testing.T) {
	f := newFixture(t)
	holdFile(t, filepath.Dir(f.socket))
	f.start()
	f.connect()
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// holdFile locks path, and creates it if it is missing.
func holdFile(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	}
	if err == nil {
		t.Cleanup(func() { _ = f.Close() })
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A generator with an inherited socket serves without the lock, and does not touch the record.
func TestInheritedSocketServesWithoutLock(t *testing.T) {
	f := newFixture(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: f.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f.manager.Socket = l
	f.program.env = func(name string) string {
		if name == "LISTEN_FDS" {
			return "1"
		}
		return ""
	}
	holdFile(t, f.socket+".lock")
	f.start()
	f.connect()
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, f.stderr.String())
	}
}
