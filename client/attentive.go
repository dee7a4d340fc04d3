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
	paceGaps    = 8                      // gaps that say how far apart tokens come
	shortestGap = time.Millisecond       // below, what it takes to fall asleep and get up is much of the gap
	longestGap  = 20 * time.Millisecond  // above, nobody sees a fraction of a millisecond
	upBefore    = 300 * time.Microsecond // at most, before a token is due
	// awakeProcessors is how many processors there are at least where one may be kept
	// awake: the generator's thread keeps another busy all the time.
	awakeProcessors = 4
)

// connection is what a Client has of its socket once it has said hello.
type connection interface {
	io.ReadWriteCloser
	SetWriteDeadline(time.Time) error
}

// attentive is a socket whose reader is awake when the next token is due.
//
// A token that finds its reader asleep wakes a processor first, which a virtual
// machine has to get from its host. So while tokens come at a steady pace the reader
// sleeps until shortly before the next one is due, then looks for it again and again,
// for a tenth of the time between two tokens at most. What comes earlier wakes it, and
// for what comes later it waits asleep.
//
// It waits in the kernel itself, not by way of Go's poller, which would be woken for
// every token too, and needs another thread to hand on that there is something to read.
type attentive struct {
	*os.File // blocks
	raw      syscall.RawConn
	dozes    bool // is never awake before there is something to read
	pace     pace
	now      func() time.Time
	ready    func(timeout time.Duration) bool // waits so long for something to read; with 0 it looks
}

// attend returns an attentive socket in place of conn, which it closes; conn itself
// where that is none, or where a thread that blocks would keep the only processor of Go.
func attend(conn net.Conn, processors int) connection {
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
	return &attentive{File: file, raw: raw, dozes: processors < awakeProcessors, now: time.Now, ready: poll(raw)}
}

// blocking returns the socket once more, such that its calls block and Go's poller
// knows nothing of it. A write of which the other side takes nothing ends after patience.
func blocking(sock *net.UnixConn, patience time.Duration) (*os.File, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if e := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil || err != nil {
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

// poll returns a function that waits for something to read from raw, its end, or an
// error. One goroutine at a time may call it.
func poll(raw syscall.RawConn) func(time.Duration) bool {
	var timeout unix.Timespec
	var ready bool
	call := func(fd uintptr) {
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil)
		ready = n > 0 || err != nil && err != unix.EINTR
	}
	return func(d time.Duration) bool {
		timeout = unix.NsecToTimespec(int64(d))
		return raw.Control(call) != nil || ready // where it is closed, Read says so
	}
}

// Read reads what there is, and waits for it where there is nothing.
func (a *attentive) Read(b []byte) (int, error) {
	// Who got the last token goes first: this thread is about to block, and another
	// would have to get up to run him.
	runtime.Gosched()
	a.await()
	n, err := a.File.Read(b)
	a.pace.came(a.now())
	return n, err
}

// await returns before Read would have to wait, or when the time to be awake is over.
func (a *attentive) await() {
	from, until, ok := a.pace.window()
	if !ok || a.dozes {
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

// Close also ends a Read that waits.
func (a *attentive) Close() error {
	_ = a.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return a.File.Close()
}

// pace learns how far apart tokens come.
type pace struct {
	last time.Time // when the last came
	gaps [paceGaps]time.Duration
	n    int // gaps so far
}

// came notes that something came.
func (p *pace) came(at time.Time) {
	if !p.last.IsZero() {
		p.gaps[p.n%paceGaps] = at.Sub(p.last)
		p.n++
	}
	p.last = at
}

// window is when to be awake for the next token: a tenth of the median gap, mostly
// before it is due. It is false where gaps differ too much, or are too short or long.
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
	return due.Add(-min(gap/12, upBefore)), due.Add(gap / 60), true
}
