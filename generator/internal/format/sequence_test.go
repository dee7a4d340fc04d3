package format

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// A process that cannot begin says why, and the program lives on.
func TestProcessThatCannotBegin(t *testing.T) {
	s, starts := newFake(t, "cannot begin")
	for range 2 {
		_, err := s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{JSON: true})
		if codeOf(err) != protocol.CodeFormatFailed || !strings.Contains(err.Error(), "no pidfd") || starts.Load() != 1 {
			t.Errorf("%v after %d starts", err, starts.Load())
		}
	}
}

// A process that passes more descriptors than its own leaves none behind.
func TestTooManyDescriptors(t *testing.T) {
	own, other, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(own.Close(), other.Close()) }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	two := unix.UnixRights(int(w.Fd()), int(w.Fd()))
	if err := unix.Sendmsg(int(other.Fd()), wordsOf(stateBegun), two, nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	q := &Sequence{conn: own, reply: make([]byte, replyBytes)}
	if err := q.awaitFork(time.Second); err == nil || q.pid != nil {
		t.Error("it is taken")
	}
	_ = r.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("they are open: %v", err)
	}
}
