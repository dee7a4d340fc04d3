package format

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// fakeMode names the variable by which the test's program becomes a stand-in for reel-format.
const fakeMode = "REEL_TEST_FAKE_FORMAT"

func TestMain(m *testing.M) {
	if mode := os.Getenv(fakeMode); mode != "" {
		fake(mode)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fake serves as reel-format does, but for what mode says. It allows every bit of every mask.
func fake(mode string) {
	control := fdConn(3)
	greeting := []uint32{version, libraries, 40}
	switch mode {
	case "silent":
		listen(control)
	case "other version":
		greeting[0]++
	case "other libraries":
		greeting[1]++
	case "dies at once":
		_, _ = os.Stderr.WriteString("no memory\n")
		os.Exit(1)
	}
	_, _ = control.Write(wordsOf(greeting...))
	for {
		message, rights := make([]byte, 8), make([]byte, unix.CmsgSpace(8))
		_, n, _, _, err := control.ReadMsgUnix(message, rights)
		if err != nil {
			return
		}
		messages, _ := unix.ParseSocketControlMessage(rights[:n])
		files, _ := unix.ParseUnixRights(&messages[0])
		if mode != "stalls" {
			fakeSequence(mode, fdConn(files[0]), files[1])
		}
	}
}

func fakeSequence(mode string, conn *net.UnixConn, file int) {
	memory, _ := unix.Mmap(file, 0, 24, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	own, _ := unix.PidfdOpen(os.Getpid(), 0)
	if mode == "cannot begin" {
		_, _ = conn.Write(append(wordsOf(stateFailed), "no pidfd"...))
		return
	}
	_, _, _ = conn.WriteMsgUnix(wordsOf(stateBegun), unix.UnixRights(own), nil)
	for i := 0; ; i++ {
		reply := []uint32{stateMask}
		copy(memory, wordsOf(^uint32(0), ^uint32(0)))
		if i == 1 {
			switch mode {
			case "unknown state":
				reply[0] = 99
			case "empty mask":
				clear(memory)
			case "drafts":
				reply = append(reply, 7, 9) // the mask after the second one has only tokens that are not drawn
				copy(memory[8:], wordsOf(1<<5|1<<6, 0, 1<<5, 0xffffff00))
			case "no answer":
				listen(conn)
			case "ends":
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		}
		_, _ = conn.Write(wordsOf(reply...))
		if i == 0 && mode == "unasked" {
			_, _ = conn.Write(wordsOf(reply...))
		}
		if _, err := conn.Read(make([]byte, 64)); err != nil {
			return
		}
	}
}

// listen reads and says nothing until the other side closes. With "select {}" Go's runtime would end the process if it
// found that nothing else can run.
func listen(conn *net.UnixConn) {
	for message := make([]byte, 8); ; {
		if _, err := conn.Read(message); err != nil {
			os.Exit(0)
		}
	}
}

func fdConn(fd int) *net.UnixConn {
	file := os.NewFile(uintptr(fd), "socket")
	c, err := net.FileConn(file)
	if err != nil {
		panic(err)
	}
	_ = file.Close()
	return c.(*net.UnixConn)
}

func wordsOf(words ...uint32) (out []byte) {
	for _, w := range words {
		out = binary.NativeEndian.AppendUint32(out, w)
	}
	return out
}

// letters is a vocabulary of 40 tokens: an EOS token, a control token, and 38 others.
func letters() Vocabulary {
	return Vocabulary{Tokens: 40, EOS: []int32{0, 77, -1}, Bytes: func(id int32) (string, bool) {
		return string('A' + id), id != 0 && id != 5
	}}
}

// newFake returns a service with the stand-in, and a short limit for what does not come.
func newFake(t *testing.T, mode string) (s *Service, starts *atomic.Int32) {
	t.Helper()
	var warned atomic.Int32
	s, err := New(os.Args[0], letters(), func(string) { warned.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	starts = new(atomic.Int32)
	s.command = func() *exec.Cmd {
		starts.Add(1)
		return &exec.Cmd{Path: os.Args[0], Env: append(os.Environ(), fakeMode+"="+mode)}
	}
	switch mode { // a busy machine may take long where an answer comes
	case "stalls":
		s.limits.fork = 300 * time.Millisecond
	case "no answer":
		s.limits.mask = 300 * time.Millisecond
	}
	t.Cleanup(func() {
		s.Close()
		if n := starts.Load(); warned.Load() < n-1 {
			t.Errorf("%d warnings of %d starts", warned.Load(), n)
		}
	})
	return s, starts
}

// codeOf returns the code of a protocol's error.
func codeOf(err error) string {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// next waits for the mask after a token; the first one after -1.
func next(q engine.Format, token int32) engine.Mask {
	if token < 0 {
		return nextWith(q, 0)
	}
	return nextWith(q, 0, token)
}

// nextWith waits for the mask after some tokens, with drafts.
func nextWith(q engine.Format, drafts int, tokens ...int32) engine.Mask {
	c := make(chan engine.Mask, 1)
	q.Next(tokens, drafts, func(m engine.Mask) { c <- m })
	return <-c
}

// Control tokens and ids beyond the vocabulary are not drawn, whatever the program says.
func TestMasksHaveDrawableTokensOnly(t *testing.T) {
	s, _ := newFake(t, "plain")
	q, err := s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{JSON: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.State(); got != (protocol.Formats{State: protocol.FormatsRunning, Open: 1}) {
		t.Errorf("%+v", got)
	}
	defer q.Close()
	for _, token := range []int32{-1, 3, 4} {
		m := next(q, token)
		if want := []uint32{^uint32(1 << 5), 1<<8 - 1}; !slices.Equal(m.Words, want) {
			t.Errorf("after %d: %x, want %x", token, m.Words, want)
		}
	}
}

// With a mask come drafts, and the masks after them, of drawable tokens. They end before a mask without any.
func TestDraftsHaveMasks(t *testing.T) {
	s, _ := newFake(t, "drafts")
	q, err := s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{JSON: true})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	next(q, -1)
	m := nextWith(q, 2, 3, 4)
	if want := []uint32{^uint32(1 << 5), 1<<8 - 1, 1 << 6, 0}; !slices.Equal(m.Words, want) ||
		!slices.Equal(m.Drafts, []int32{7}) {
		t.Errorf("%x with drafts %v, want %x", m.Words, m.Drafts, want)
	}
	if m := next(q, 7); len(m.Words) != 2 || len(m.Drafts) != 0 {
		t.Errorf("%x with drafts %v", m.Words, m.Drafts)
	}
}

// What the program does wrong fails the request with a typed error, and no other.
func TestMisbehaviourFailsTheRequest(t *testing.T) {
	for mode, cause := range map[string]string{
		"unknown state": "state 99", "empty mask": "no token", "no answer": "does not answer", "ends": "has ended",
		"unasked": "has ended", "drafts": "sent 2 drafts",
	} {
		t.Run(mode, func(t *testing.T) {
			s, _ := newFake(t, mode)
			q, err := s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{JSON: true})
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			if mode == "unasked" {
				time.Sleep(50 * time.Millisecond) // let it arrive before the question
			}
			if m := next(q, 3); codeOf(m.Err) != protocol.CodeFormatFailed || !strings.Contains(m.Err.Error(), cause) {
				t.Errorf("%+v, want %q", m, cause)
			}
		})
	}
}

// A program that does not fork for a format is killed and started again.
func TestStalledProgramIsStartedAgain(t *testing.T) {
	s, starts := newFake(t, "stalls")
	for i := range int32(2) {
		_, err := s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{JSON: true})
		if codeOf(err) != protocol.CodeFormatFailed || starts.Load() < i+1 {
			t.Errorf("%v after %d starts", err, starts.Load())
		}
		for s.running() {
			time.Sleep(time.Millisecond)
		}
		for !s.running() {
			time.Sleep(time.Millisecond)
		}
	}
}

func (s *Service) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process != nil
}

// A program that does not come up gives format_unavailable with the reason.
func TestUnavailable(t *testing.T) {
	for mode, cause := range map[string]string{
		"silent": "too long", "other version": "another version", "other libraries": "another version", "dies at once": "no memory",
	} {
		t.Run(mode, func(t *testing.T) {
			s, _ := newFake(t, mode)
			if mode == "silent" {
				s.limits.start = 100 * time.Millisecond
			}
			_, err := s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{JSON: true})
			if codeOf(err) != protocol.CodeFormatUnavailable || !strings.Contains(err.Error(), cause) {
				t.Errorf("%v, want %q", err, cause)
			}
			if got := s.State(); mode == "dies at once" && (got.State != protocol.FormatsFailed || got.Reason != cause) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The digest of the libraries, a part of the tokens' identity, is that of format/Cargo.lock.
func TestLibraries(t *testing.T) {
	lock, err := os.ReadFile("../../../format/Cargo.lock")
	if err != nil {
		t.Fatal(err)
	}
	sum := fnv.New32a()
	_, _ = sum.Write(lock)
	if sum.Sum32() != libraries {
		t.Errorf("format/Cargo.lock has changed: libraries is %#08x", sum.Sum32())
	}
}

// Without the program the error says how to get it.
func TestMissingProgram(t *testing.T) {
	s, err := New(filepath.Join(t.TempDir(), Program), letters(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{JSON: true})
	if codeOf(err) != protocol.CodeFormatUnavailable || !strings.Contains(err.Error(), "cargo") {
		t.Error(err)
	}
	if got := s.State(); got != (protocol.Formats{State: protocol.FormatsMissing}) {
		t.Errorf("%+v", got)
	}
}

// A control token without weights is not drawn: calls that need it cannot be required.
func TestCallsWithATokenWithoutWeights(t *testing.T) {
	s, _ := newFake(t, "right")
	for _, id := range []int32{40, 64, 1 << 30} {
		_, err := s.CompileCalls(t.Context(), engine.User{UID: 1}, "{}", []int32{5, id})
		if codeOf(err) != protocol.CodeFormatUnavailable || s.formats != 0 {
			t.Errorf("token %d: %v, %d places are taken", id, err, s.formats)
		}
	}
}

// One uid has at most half of the places, and gets them back. Its names leave some of these to each other.
func TestPlacesAreShared(t *testing.T) {
	const half = maxFormats / 2
	anna, ben := engine.User{UID: 1, Name: "anna"}, engine.User{UID: 1, Name: "ben"}
	one, two := engine.User{UID: 1}, engine.User{UID: 2}
	for name, c := range map[string]struct {
		users []engine.User
		want  []int
	}{
		"uids":           {[]engine.User{one, two}, []int{half, half / 2}},
		"names":          {[]engine.User{anna, ben, two}, []int{half / 2, half / 4, (maxFormats - 3*half/4) / 2}},
		"without a name": {[]engine.User{anna, one}, []int{half / 2, half / 4}},
		"all without":    {[]engine.User{one, anna}, []int{half, 0}},
	} {
		s, err := New(Program, letters(), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		for i, user := range c.users {
			n := 0
			for s.take(user) == nil {
				n++
			}
			if n != c.want[i] {
				t.Errorf("%s: %v took %d places, want %d", name, user, n, c.want[i])
			}
			c.want[i] = n
		}
		for i, user := range c.users {
			for range c.want[i] {
				s.give(user)
			}
		}
		if s.formats+len(s.uids)+len(s.names) != 0 {
			t.Errorf("%s: places were not given back: %v", name, s.names)
		}
		s.Close()
	}
}

// A hang-up while a format is compiled frees its place.
func TestHangUpFreesThePlace(t *testing.T) {
	s, _ := newFake(t, "stalls")
	s.limits.fork = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Compile(ctx, engine.User{UID: 1}, protocol.Format{JSON: true}); err == nil || s.formats != 0 {
		t.Errorf("%v, %d places are taken", err, s.formats)
	}
	if !s.running() {
		t.Error("the program was killed")
	}
}

// Masks that come after Close reach nobody.
func TestCloseWhileAMaskIsAwaited(t *testing.T) {
	s, _ := newFake(t, "no answer")
	q, err := s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{JSON: true})
	if err != nil {
		t.Fatal(err)
	}
	q.Next([]int32{3}, 0, func(m engine.Mask) { t.Errorf("done was called: %+v", m) })
	q.Close()
	time.Sleep(2 * s.limits.mask)
	if s.formats != 0 {
		t.Error("the place is still taken")
	}
}

// The other process cannot cut shared memory, which would end this one by a signal.
func TestSharedMemoryKeepsItsSize(t *testing.T) {
	s, err := share("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer s.closeFile()
	defer s.unmap()
	for _, size := range []int64{0, 8192} {
		if err := unix.Ftruncate(s.file, size); err == nil {
			t.Errorf("its size was changed to %d", size)
		}
	}
}

func TestVocabularyIsWrittenAsDocumented(t *testing.T) {
	v := Vocabulary{Tokens: 3, EOS: []int32{2, 9}, Bytes: func(id int32) (string, bool) { return "ab"[:id], id > 0 }}
	want := append(wordsOf(version, 3, 1, 2, never, 1, never), 'a')
	if got := v.write(); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}
