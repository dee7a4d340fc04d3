//go:build linux

package devices

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Guard decides which device nodes a program may open, and records them. The kernel asks it at every open by the
// program, its threads and its children.
type Guard struct {
	allow  func(Node) bool
	listen *os.File
	done   chan struct{}

	mu             sync.Mutex
	opened, denied []Node // each once
}

// Start starts cmd under a guard. allow is called from one goroutine. Start executes the calling program again, which
// must call Become first in main.
func Start(cmd *exec.Cmd, allow func(Node) bool) (*Guard, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "ours"), os.NewFile(uintptr(ends[1]), "theirs")
	defer func() { _ = errors.Join(ours.Close(), theirs.Close()) }()
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	fd := 2 + len(cmd.ExtraFiles)
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d %s", guarded, fd, cmd.Path))
	cmd.Path = self
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	_ = theirs.Close() // so that receive fails if the program ends
	g := &Guard{allow: allow, done: make(chan struct{})}
	if g.listen, err = receive(ours); err != nil {
		return nil, errors.Join(fmt.Errorf("devices: no seccomp listener: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	go g.serve()
	return g, nil
}

// receive reads the listener's descriptor, which Become sends.
func receive(from *os.File) (*os.File, error) {
	space := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(from.Fd()), make([]byte, 1), space, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(space[:n])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errors.New("the program sent no descriptor"), err)
	}
	rights, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(rights[0]), "seccomp"), nil
}

// Opened returns the device nodes that the program opened so far, each once, in order.
func (g *Guard) Opened() []Node { return g.copy(&g.opened) }

// Denied returns the device nodes that the program was refused, each once, in order.
func (g *Guard) Denied() []Node { return g.copy(&g.denied) }

func (g *Guard) copy(list *[]Node) []Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(*list)
}

// Wait waits until the program and all its children have ended.
func (g *Guard) Wait() { <-g.done }

// notification and response are struct seccomp_notif and struct seccomp_notif_resp of seccomp_unotify(2).
type notification struct {
	id          uint64
	pid, flags  uint32
	nr          int32
	arch        uint32
	instruction uint64
	args        [6]uint64
}

type response struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// goOn is SECCOMP_USER_NOTIF_FLAG_CONTINUE: the kernel executes the call.
const goOn = 1

// serve answers the kernel's questions until the program and its children have ended.
func (g *Guard) serve() {
	defer close(g.done)
	defer g.listen.Close()
	fd := int(g.listen.Fd())
	for {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			if ready[0].Revents != 0 {
				return // no process is left
			}
			continue
		}
		var asked notification
		if ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&asked)) != nil {
			continue // the process has ended
		}
		answer := response{id: asked.id, flags: goOn}
		if !g.decide(asked) {
			answer.flags, answer.err = 0, -int32(unix.EPERM)
		}
		_ = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)) // fails if the process has ended
	}
}

func ioctl(fd int, request uint, data unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(data)); errno != 0 {
		return errno
	}
	return nil
}

// decide reports whether an open may go on, and records its device node.
func (g *Guard) decide(asked notification) bool {
	at, err := asked.path()
	if err != nil {
		return true // an unreadable address; the kernel will refuse it
	}
	n, is := nodeAt(at)
	if !is {
		return true
	}
	allowed, list := g.allow(n), &g.opened
	if !allowed {
		list = &g.denied
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(*list, n) {
		*list = append(*list, n)
	}
	return allowed
}

// path returns the path that the program wants to open.
func (n notification) path() (string, error) {
	process := filepath.Join("/proc", strconv.Itoa(int(n.pid)))
	folder, address := filepath.Join(process, "cwd"), n.args[0]
	if !slices.Contains(legacy[runtime.GOARCH], uint32(n.nr)) {
		address = n.args[1]
		if int32(n.args[0]) != unix.AT_FDCWD {
			folder = filepath.Join(process, "fd", strconv.Itoa(int(int32(n.args[0]))))
		}
	}
	memory, err := os.Open(filepath.Join(process, "mem"))
	if err != nil {
		return "", err
	}
	defer memory.Close()
	text := make([]byte, unix.PathMax)
	if length, err := memory.ReadAt(text, int64(address)); length == 0 {
		return "", err
	}
	end := bytes.IndexByte(text, 0)
	if end <= 0 {
		return "", unix.ENAMETOOLONG
	}
	if text[0] == '/' {
		return string(text[:end]), nil
	}
	return filepath.Join(folder, string(text[:end])), nil
}

// Held returns the device nodes that a process has open.
func Held(pid int) (list []Node) {
	found, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*")) // the pattern is well formed
	for _, link := range found {
		if n, is := nodeAt(link); is {
			if n.Path, _ = os.Readlink(link); !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	return list
}
