//go:build formats

package format

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// pidOf returns the process of a format.
func pidOf(t *testing.T, q *Sequence) int {
	t.Helper()
	c, err := q.pid.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info []byte
	_ = c.Control(func(fd uintptr) { info, err = os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd)) })
	match := regexp.MustCompile(`(?m)^Pid:\s+(\d+)$`).FindSubmatch(info)
	if match == nil {
		t.Fatalf("%s, %v", info, err)
	}
	pid, _ := strconv.Atoi(string(match[1]))
	return pid
}

// programPid returns the process that forks for formats, when it has pid other than old.
func (s *Service) programPid(old int) int {
	for {
		s.mu.Lock()
		pid := old
		if s.process != nil {
			pid = s.process.command.Process.Pid
		}
		s.mu.Unlock()
		if pid != old {
			return pid
		}
		time.Sleep(time.Millisecond)
	}
}

// follows fails the test unless a format that is compiled now can be followed.
func (s *Service) follows(t *testing.T) {
	t.Helper()
	q := s.compiled(t, protocol.Format{Regex: "ok"})
	defer q.Close()
	if n, m := walk(q, "ok"); n != 2 || !m.Ended {
		t.Errorf("%d bytes, then %+v", n, m)
	}
}

// A format whose process is killed or stalls fails; others and new ones do not.
func TestFormatOfADeadProcess(t *testing.T) {
	s := newService(t, vocabulary(1000))
	s.limits.mask = time.Second
	for signal, cause := range map[unix.Signal]string{unix.SIGKILL: "has ended", unix.SIGSTOP: "does not answer"} {
		q, beside := s.compiled(t, protocol.Format{Regex: "a*"}), s.compiled(t, protocol.Format{Regex: "a*"})
		pid := pidOf(t, q)
		if err := unix.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
		if m := next(q, 3+'a'); codeOf(m.Err) != protocol.CodeFormatFailed || !strings.Contains(m.Err.Error(), cause) {
			t.Errorf("%v: %+v", signal, m)
		}
		if m := next(beside, 3+'a'); m.Err != nil {
			t.Errorf("beside %v: %v", signal, m.Err)
		}
		q.Close()
		beside.Close()
		awaitEnd(t, pid)
		s.follows(t)
	}
}

// awaitEnd fails the test if a process does not end soon.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for range 200 {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d lives on", pid)
}

// When the program that forks is killed or stalls, it comes back, and running formats go on.
func TestProgramComesBack(t *testing.T) {
	s := newService(t, vocabulary(1000))
	s.limits.fork = time.Second
	beside := s.compiled(t, protocol.Format{Regex: "a*"})
	defer beside.Close()
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP} {
		pid := s.programPid(0)
		if err := unix.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
		if signal == unix.SIGSTOP {
			_, err := s.Compile(t.Context(), engine.User{UID: 1}, protocol.Format{Regex: "a"})
			if codeOf(err) != protocol.CodeFormatFailed {
				t.Error(err)
			}
		}
		s.programPid(pid)
		s.follows(t)
		if m := next(beside, 3+'a'); m.Err != nil {
			t.Errorf("beside %v: %v", signal, m.Err)
		}
	}
}

// A flood of one user's formats is refused at its bound, and another user's format finds a place.
func TestFlood(t *testing.T) {
	s := newService(t, vocabulary(1000))
	var mu sync.Mutex
	var open []engine.Format
	refused := 0
	var all sync.WaitGroup
	for range 3 * maxFormats {
		all.Go(func() {
			q, err := s.Compile(t.Context(), engine.User{UID: 7}, protocol.Format{JSON: true})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				open = append(open, q)
			case codeOf(err) == protocol.CodeBusy:
				refused++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(open) != maxFormats/2 || refused != 3*maxFormats-maxFormats/2 {
		t.Errorf("%d open, %d refused", len(open), refused)
	}
	s.follows(t)
	for _, q := range open {
		if m := next(q, 3+'{'); m.Err != nil {
			t.Error(m.Err)
		}
		q.Close()
	}
	if s.formats != 0 {
		t.Errorf("%d places are taken", s.formats)
	}
}

// Closed formats leave neither processes nor descriptors behind.
func TestNothingIsLeft(t *testing.T) {
	s := newService(t, vocabulary(1000))
	s.follows(t)
	program := strconv.Itoa(s.programPid(0))
	before, there := descriptors(t, "self"), descriptors(t, program)
	pids := make([]int, 20)
	for i := range pids {
		q := s.compiled(t, protocol.Format{JSON: true})
		pids[i] = pidOf(t, q)
		next(q, 3+'{')
		q.Close()
	}
	for _, pid := range pids {
		awaitEnd(t, pid)
	}
	if after, now := descriptors(t, "self"), descriptors(t, program); after > before || now > there {
		t.Errorf("%d descriptors, %d before; the program has %d, and had %d", after, before, now, there)
	}
}

func descriptors(t *testing.T, process string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + process + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestGenerator is the generator of TestEndsWithTheGenerator.
func TestGenerator(t *testing.T) {
	if os.Getenv("REEL_TEST_GENERATOR") == "" {
		return
	}
	s := newService(t, vocabulary(1000))
	q := s.compiled(t, protocol.Format{JSON: true})
	fmt.Println("pids", s.programPid(0), pidOf(t, q))
	select {}
}

// A generator that is killed leaves no process behind.
func TestEndsWithTheGenerator(t *testing.T) {
	c := exec.Command(os.Args[0], "-test.run=^TestGenerator$")
	c.Env = append(os.Environ(), "REEL_TEST_GENERATOR=1", "REEL_FORMAT="+program(t))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var forks, follows int
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "pids %d %d", &forks, &follows); err == nil {
			break
		}
	}
	if forks == 0 {
		t.Fatal("the generator did not start")
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	awaitEnd(t, forks)
	awaitEnd(t, follows)
}

// The process of a format may take a bounded memory, and open and write nothing. If memory is short, it ends first.
func TestLimitsOfAProcess(t *testing.T) {
	s := newService(t, vocabulary(1000))
	q := s.compiled(t, protocol.Format{JSON: true})
	defer q.Close()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pidOf(t, q)))
	if err != nil {
		t.Fatal(err)
	}
	for limit, most := range map[string]int{
		"Max address space": 1 << 30, "Max open files": 0, "Max file size": 0, "Max core file size": 0,
	} {
		match := regexp.MustCompile(limit + ` +\d+ +(\d+) `).FindSubmatch(limits)
		if match == nil {
			t.Errorf("%s is not limited:\n%s", limit, limits)
			continue
		}
		if n, _ := strconv.Atoi(string(match[1])); n > most {
			t.Errorf("%s is %d, want at most %d", limit, n, most)
		}
	}
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pidOf(t, q)))
	if err != nil || strings.TrimSpace(string(score)) != "1000" {
		t.Errorf("the kernel ends it at %q, want first: %v", score, err)
	}
}

// A format that takes too much memory ends alone.
func TestMemoryOfAFormat(t *testing.T) {
	s := newService(t, vocabulary(1000))
	q, beside := s.compiled(t, protocol.Format{Regex: "(.*a.{2000})"}), s.compiled(t, protocol.Format{Regex: "a*"})
	defer q.Close()
	defer beside.Close()
	const little = 16 << 20
	if err := unix.Prlimit(pidOf(t, q), unix.RLIMIT_AS, &unix.Rlimit{Cur: little, Max: little}, nil); err != nil {
		t.Fatal(err)
	}
	m := next(q, -1)
	for range 5000 {
		if m = next(q, 3+'a'); m.Err != nil {
			break
		}
	}
	if codeOf(m.Err) != protocol.CodeFormatFailed || !strings.Contains(m.Err.Error(), "memory") {
		t.Errorf("%+v", m)
	}
	if m := next(beside, 3+'a'); m.Err != nil {
		t.Error(m.Err)
	}
}
