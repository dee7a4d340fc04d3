package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a running reel-format, which holds the vocabulary and forks for each format.
type process struct {
	command *exec.Cmd
	control *net.UnixConn
	stderr  tail
	ready   chan struct{} // closed when it has read the vocabulary
}

// socketPair returns the two ends of a connection of whole messages.
func socketPair() (own *net.UnixConn, other *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	mine, other := os.NewFile(uintptr(pair[0]), "own"), os.NewFile(uintptr(pair[1]), "other")
	defer func() { _ = mine.Close() }()
	c, err := net.FileConn(mine)
	if err != nil {
		return nil, nil, errors.Join(err, other.Close())
	}
	return c.(*net.UnixConn), other, nil
}

// launch starts the program, which ends with the thread that calls launch.
func launch(command *exec.Cmd, vocabulary sealed) (*process, error) {
	own, other, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = other.Close() }()
	file, err := unix.FcntlInt(uintptr(vocabulary.file), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	shared := os.NewFile(uintptr(file), "vocabulary")
	defer func() { _ = shared.Close() }()
	p := &process{command: command, control: own, ready: make(chan struct{})}
	command.ExtraFiles = []*os.File{other, shared} // descriptors 3 and 4
	command.Stderr = &p.stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return p, nil
}

// startTime bounds the time in which the program reads a vocabulary: about 0.3 s for 128,000 tokens.
const startTime = 30 * time.Second

// greeting returns what the program says when it has read a vocabulary.
func greeting(tokens int) (words []byte) {
	for _, word := range []uint32{version, libraries, uint32(tokens)} {
		words = binary.NativeEndian.AppendUint32(words, word)
	}
	return words
}

// greet waits until the program has read the vocabulary, and kills it if it does not, or is another version.
func (p *process) greet(tokens int) {
	message := make([]byte, 12)
	_ = p.control.SetReadDeadline(time.Now().Add(startTime))
	n, err := p.control.Read(message)
	switch {
	case err != nil || n != len(message):
		p.kill()
	case !slices.Equal(message, greeting(tokens)):
		_, _ = p.stderr.Write([]byte(Program + " is of another version than reel-generator"))
		p.kill()
	default:
		close(p.ready)
	}
}

// kill ends the program. The formats that it forked for live on.
func (p *process) kill() { _ = p.command.Process.Kill() }

// wait waits until the program has ended, and returns the reason.
func (p *process) wait() error {
	err := p.command.Wait()
	_ = p.control.Close()
	if said := p.stderr.String(); said != "" {
		return errors.New(said)
	}
	return fmt.Errorf("%s has ended: %w", Program, err)
}

// tail keeps the end of what a program says, and what is said of it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 300

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// Pauses between two starts of the program.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// keep starts the program again whenever it ends, until the service is closed. The kernel ends the program with the
// thread that started it, so the goroutine keeps that thread.
func (s *Service) keep() {
	runtime.LockOSThread()
	defer s.vocabulary.closeFile()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		begun := time.Now()
		p, err := launch(s.command(), s.vocabulary)
		if err == nil && s.begin(p) {
			go p.greet(s.tokens)
			err = p.wait()
		}
		if time.Since(begun) > lastPause {
			pause = firstPause
		}
		if !s.ended(err) {
			return
		}
		select {
		case <-s.closed:
			return
		case <-time.After(pause):
		}
	}
}
