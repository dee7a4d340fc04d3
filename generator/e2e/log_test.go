//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/client"
)

// A generator serves and stops as usual if its log is not read.
func TestServesWhileNobodyReadsItsLog(t *testing.T) {
	files := map[string]func(*testing.T) *os.File{
		"a pipe": fullPipe, "a terminal": suspendedTerminal, "journald": unreadSocket,
	}
	for name, stalled := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := unreadGenerator(t, stalled(t))
			for i := range scaled(500, 100) {
				c, err := client.Dial(t.Context(), client.Options{Socket: g.socket, Wait: patience})
				if err != nil {
					t.Fatalf("connection %d: %v", i, err)
				}
				c.Close()
			}
			if _, err := client.ReadStatus(t.Context(), client.Options{Socket: g.socket}); err != nil {
				t.Fatal(err)
			}
			g.signal(syscall.SIGTERM)
			select {
			case <-g.exited:
				g.wantExit(0)
			case <-time.After(20 * time.Second): // flushing takes one second at most
				t.Fatal("the generator does not end after SIGTERM")
			}
		})
	}
}

// unreadGenerator starts a generator that logs every connection to stderr.
func unreadGenerator(t *testing.T, stderr *os.File) *generator {
	socket := tempDir(t) + "/generator.sock"
	p := prepare(t, "reel-generator", "--socket", socket, "--log-level", "debug", "--device", device)
	g := &generator{process: p, socket: socket}
	g.cmd.Stderr = stderr
	g.start()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for ctx.Err() == nil {
		if _, err := os.Lstat(socket); err == nil {
			return g
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no socket: the start waits for its log")
	return nil
}

// file makes an os.File of a descriptor and closes it when the test ends. A child process gets it in blocking mode.
func file(t *testing.T, fd int) *os.File {
	f := os.NewFile(uintptr(fd), "stderr")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// fullPipe returns the writing end of a full pipe.
func fullPipe(t *testing.T) *os.File {
	var ends [2]int
	must(t, unix.Pipe2(ends[:], unix.O_CLOEXEC))
	file(t, ends[0])
	size, err := unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, os.Getpagesize())
	must(t, err)
	_, err = unix.Write(ends[1], make([]byte, size))
	must(t, err)
	return file(t, ends[1])
}

// suspendedTerminal returns a terminal with its output stopped, as by Ctrl-S.
func suspendedTerminal(t *testing.T) *os.File {
	_, theirs := openTerminal(t)
	must(t, unix.IoctlSetInt(int(theirs.Fd()), unix.TCXONC, unix.TCOOFF))
	return theirs
}

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (ours int, theirs *os.File) {
	ours, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	must(t, err)
	file(t, ours)
	must(t, unix.IoctlSetPointerInt(ours, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(ours, unix.TIOCGPTN)
	must(t, err)
	fd, err := unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	must(t, err)
	return ours, file(t, fd)
}

// A log on a terminal, where answers may be printed too, has no line for a served request.
func TestTerminalShowsNoRequests(t *testing.T) {
	ours, theirs := openTerminal(t)
	socket := tempDir(t) + "/generator.sock"
	p := prepare(t, "reel-generator", "--socket", socket, "--device", device)
	g := &generator{process: p, socket: socket}
	g.cmd.Stderr = theirs
	g.start()
	if got := ask(g.client(), greedy([]int32{1, 2, 3}, 2)); got.Err != "" {
		t.Fatal(got.Err)
	}
	g.signal(syscall.SIGTERM)
	g.wantExit(0)
	must(t, theirs.Close())
	var shown strings.Builder
	for b := make([]byte, 4096); ; {
		n, err := unix.Read(ours, b)
		if err != nil { // all has been read
			break
		}
		shown.Write(b[:n])
	}
	if text := shown.String(); !strings.Contains(text, "ready") || strings.Contains(text, "req_id") {
		t.Errorf("the terminal shows %s", text)
	}
}

// unreadSocket returns a stream socket that is not read, as while journald is stopped.
func unreadSocket(t *testing.T) *os.File {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	file(t, ends[0])
	return file(t, ends[1])
}
