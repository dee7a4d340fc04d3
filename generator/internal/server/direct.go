package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"reel/generator/internal/engine"
)

// directRequests is how many requests may run at most for the engine's thread to
// write their tokens itself. Each takes 10 to 15 µs of it, and the step that runs
// meanwhile 500 µs or more.
const directRequests = 8

// Token is the engine's. While few requests run, its thread writes the token to the
// socket itself, unless something is in the way; else the request's goroutine does.
//
// To wake that goroutine takes 40 µs at the median and 330 µs at the 99th
// percentile (16 cores of a virtual machine): a processor has to get up, and as the
// goroutine is next in the queue of the processor that the engine's thread keeps
// busy, Go's scheduler sleeps before it takes it from there. Then a second
// goroutine had to be woken to write.
func (r *request) Token(t engine.Token) {
	if !r.direct(&t) {
		r.box.Token(t)
	}
}

// Finish is the engine's. The goroutine does the rest: counters, a log line.
func (r *request) Finish(f engine.Finish) { r.box.Finish(f) }

// direct sends a token on the engine's thread, which waits for nobody: it is false,
// and nothing was done, where somebody else is at work on the request, where what
// came before is not with the kernel yet, or where more is asked for than a token
// and its text.
func (r *request) direct(t *engine.Token) bool {
	if r.params.HasLogprobs || len(r.params.Stop) > 0 || r.c.s.running.Load() > directRequests || !r.work.TryLock() {
		return false
	}
	defer r.work.Unlock()
	if !r.box.empty() || len(r.frames) > 0 || !r.c.out.empty() {
		return false
	}
	r.observe(1)
	r.token(t)
	if !r.c.out.add(r.frames) {
		r.frames = r.frames[:0] // else another request filled the outbox meanwhile, and the goroutine cuts the client
	}
	return true
}

// socketWriter writes to a socket what the kernel takes at once. One goroutine at a
// time uses it.
type socketWriter struct {
	raw  syscall.RawConn
	call func(fd uintptr) // kept: a new one would be allocated for each write
	b    []byte
	n    int
}

// newSocketWriter returns nil where the socket is closed already.
func newSocketWriter(sock *net.UnixConn) *socketWriter {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil
	}
	w := &socketWriter{raw: raw}
	w.call = func(fd uintptr) {
		// An error is the outbox's writer's to meet.
		w.n, _ = unix.SendmsgN(int(fd), w.b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	return w
}

// write returns how many bytes of b were taken. It does not wait.
func (w *socketWriter) write(b []byte) int {
	w.b, w.n = b, 0
	_ = w.raw.Control(w.call)
	w.b = nil
	return max(0, w.n)
}
