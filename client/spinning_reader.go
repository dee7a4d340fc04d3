package client

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	paceGaps    = 8                      // gaps from which the pace of tokens is estimated
	shortestGap = time.Millisecond       // below it, falling asleep and waking take much of the gap
	longestGap  = 20 * time.Millisecond  // above it, a fraction of a millisecond makes no visible difference
	sameStep    = 200 * time.Microsecond // a token that comes within it is of the same step, and had been guessed
	spinLead    = 300 * time.Microsecond // spinning begins at most this long before a token is due
	// spinProcessors is the least number of processors with which a reader may spin:
	// the generator's thread already keeps one processor busy all the time.
	spinProcessors = 4
)

// connection is the part of a socket that a Client uses after hello.
type connection interface {
	io.ReadWriteCloser
	SetWriteDeadline(time.Time) error
}

// spinningReader is a socket that polls for the next token shortly before it is due.
//
// A token that finds its reader asleep has to wake a processor first, and a virtual
// machine has to get that processor from its host. So while tokens come at a steady
// pace the reader sleeps until shortly before the next one is due, then polls, for at
// most a tenth of the time between two tokens. A token that comes earlier wakes it. If
// the token comes later, the reader goes back to sleep.
//
// It waits in a system call of its own instead of Go's poller, which would also wake
// for each token and would need another thread to pass the event on.
type spinningReader struct {
	*os.File   // in blocking mode
	raw        syscall.RawConn
	neverSpins bool // always sleep until there is something to read
	pace       pace
	now        func() time.Time
	ready      func(timeout time.Duration) bool // waits up to timeout for something to read; 0: polls once
}

// newSpinningReader returns a spinning reader of conn's socket and closes conn. It
// returns conn itself if that is no Unix socket, or if Go has a single processor,
// which a blocked thread would occupy.
func newSpinningReader(conn net.Conn, processors int) connection {
	sock, ok := conn.(*net.UnixConn)
	if !ok || processors < 2 {
		return conn
	}
	file, err := blocking(sock, writeTime)
	if err != nil {
		return conn
	}
	raw, _ := file.SyscallConn() // an open file has one
	sock.Close()
	return &spinningReader{
		File: file, raw: raw, neverSpins: processors < spinProcessors,
		now: time.Now, ready: poll(raw),
	}
}

// blocking returns a duplicate of the socket in blocking mode, unknown to Go's poller.
// A write fails after patience if the other side takes nothing.
func blocking(sock *net.UnixConn, patience time.Duration) (*os.File, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	duplicate := func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }
	if e := raw.Control(duplicate); e != nil || err != nil {
		return nil, errors.Join(e, err)
	}
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	err = cmp.Or(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit), unix.SetNonblock(fd, false))
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "generator's socket"), nil
}

// poll returns a function that waits up to a timeout until raw has data, has ended or
// has an error. Only one goroutine at a time may call it.
func poll(raw syscall.RawConn) func(time.Duration) bool {
	var timeout unix.Timespec
	var ready bool
	call := func(fd uintptr) {
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil)
		ready = n > 0 || err != nil && err != unix.EINTR
	}
	return func(d time.Duration) bool {
		timeout = unix.NsecToTimespec(int64(d))
		return raw.Control(call) != nil || ready // if raw is closed, Read reports it
	}
}

// Read reads available bytes, and waits if there are none.
func (a *spinningReader) Read(b []byte) (int, error) {
	// Yield to the goroutine that received the last token: this thread is about to
	// block, and waking another thread to run that goroutine would take longer.
	runtime.Gosched()
	a.await()
	n, err := a.File.Read(b)
	a.pace.arrived(a.now())
	return n, err
}

// await returns when Read would not have to wait, or when the time to spin is over.
func (a *spinningReader) await() {
	from, until, ok := a.pace.window()
	if !ok || a.neverSpins {
		return
	}
	for left := from.Sub(a.now()); left > 0; left = from.Sub(a.now()) {
		if a.ready(left) {
			return
		}
	}
	for a.now().Before(until) && !a.ready(0) {
	}
}

// Close also ends a waiting Read.
func (a *spinningReader) Close() error {
	_ = a.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return a.File.Close()
}

// pace estimates the time between tokens, or between steps that each bring several.
type pace struct {
	last time.Time // arrival of the last step's first token
	gaps [paceGaps]time.Duration
	n    int // gaps seen
}

// arrived records an arrival.
func (p *pace) arrived(at time.Time) {
	if !p.last.IsZero() {
		if at.Sub(p.last) < sameStep {
			return
		}
		p.gaps[p.n%paceGaps] = at.Sub(p.last)
		p.n++
	}
	p.last = at
}

// window returns when to spin for the next token: for a tenth of the median gap, most
// of it before the token is due. ok is false if gaps vary too much or their median is
// outside shortestGap to longestGap.
func (p *pace) window() (from, until time.Time, ok bool) {
	if p.n < paceGaps {
		return from, until, false
	}
	sorted := p.gaps
	slices.Sort(sorted[:])
	gap := sorted[paceGaps/2]
	if gap < shortestGap || gap > longestGap || sorted[paceGaps-3]-sorted[2] > gap/8 {
		return from, until, false
	}
	due := p.last.Add(gap)
	return due.Add(-min(gap/12, spinLead)), due.Add(gap / 60), true
}
