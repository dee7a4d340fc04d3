package logging

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// The files of these functions are in blocking mode, like an inherited stderr. A write blocks
// when the kernel's buffer is full, until the other end is read.

func pipe(t *testing.T) (read, write *os.File) {
	var ends [2]int
	check(t, unix.Pipe2(ends[:], unix.O_CLOEXEC))
	return file(t, ends[0]), file(t, ends[1])
}

// socket returns a pair of stream sockets, like journald's.
func socket(t *testing.T) (read, write *os.File) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	return file(t, ends[0]), file(t, ends[1])
}

// terminal returns a pseudo-terminal in raw mode.
func terminal(t *testing.T) (read, write *os.File) {
	ours, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	check(t, err)
	read = file(t, ours)
	check(t, unix.IoctlSetPointerInt(ours, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(ours, unix.TIOCGPTN)
	check(t, err)
	theirs, err := unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	check(t, err)
	_, err = term.MakeRaw(theirs)
	check(t, err)
	return read, file(t, theirs)
}

// file returns a file that is closed when the test ends.
func file(t *testing.T, fd int) *os.File {
	f := os.NewFile(uintptr(fd), "stderr")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Ctrl-S suspends a terminal's output until Ctrl-Q.
func TestSuspendedTerminal(t *testing.T) {
	t.Parallel()
	read, write := terminal(t)
	q := NewQueue(write)
	if !q.Terminal() {
		t.Error("Terminal is false")
	}
	check(t, unix.IoctlSetInt(int(write.Fd()), unix.TCXONC, unix.TCOOFF))
	within(t, "Write", func() { fmt.Fprint(q, "one\n"); fmt.Fprint(q.Frames(), "two\n") })
	within(t, "Flush", q.Flush)
	if lines, _ := q.held(); lines != 2 {
		t.Error("a suspended terminal took lines")
	}
	check(t, unix.IoctlSetInt(int(write.Fd()), unix.TCXONC, unix.TCOON))
	awaitDrained(t, q)
	text := make([]byte, 8)
	if _, err := io.ReadFull(read, text); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("%q, %v", text, err)
	}
}
