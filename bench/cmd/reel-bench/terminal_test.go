package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal returns one end of a new pseudo-terminal, and a function that closes it and
// returns everything written to it.
func terminal(t *testing.T) (theirs *os.File, written func() string) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return theirs, func() string {
		theirs.Close()
		var all strings.Builder
		b := make([]byte, 4096)
		for {
			n, err := ours.Read(b)
			all.Write(b[:n])
			if err != nil { // the other end is closed and all is read
				return all.String()
			}
		}
	}
}

// TestProgressOnATerminal: a measurement shows a progress bar, only on a terminal.
func TestProgressOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	socket := paced().Listen(t)
	theirs, written := terminal(t)
	var out strings.Builder
	args := []string{"latency", "--socket", socket, "--runs", "2", "--prompts", "10,20", "--max-tokens", "9"}
	if code := run(t.Context(), args, &out, theirs); code != 0 {
		t.Fatalf("exit %d: %s", code, written())
	}
	if got := written(); !strings.Contains(got, "latency") || !strings.Contains(got, "/6") {
		t.Errorf("the terminal shows %q", got)
	}
	if strings.Contains(out.String(), "\r") {
		t.Errorf("the bar is in the output: %q", out.String())
	}
}

// TestNoProgressOnADumbTerminal: a terminal that cannot redraw a line gets no bar.
func TestNoProgressOnADumbTerminal(t *testing.T) {
	t.Setenv("TERM", "dumb")
	theirs, written := terminal(t)
	var out strings.Builder
	args := []string{"latency", "--socket", paced().Listen(t), "--runs", "2", "--prompts", "10", "--max-tokens", "9"}
	if code := run(t.Context(), args, &out, theirs); code != 0 {
		t.Fatalf("exit %d: %s", code, written())
	}
	if got := written(); got != "" {
		t.Errorf("the terminal shows %q", got)
	}
}
