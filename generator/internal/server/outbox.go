package server

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// newOutboxes returns the outboxes of a server, whose connections are dealt out to them: one for every four processors
// and at most four, since a pass over 256 sockets takes a thread nearly 2 ms.
func newOutboxes() []*outbox {
	all := make([]*outbox, max(1, min(4, runtime.GOMAXPROCS(0)/4)))
	for i := range all {
		all[i] = &outbox{}
	}
	return all
}

// outbox lists the requests that have tokens in their mailboxes, for one thread that writes the tokens of a step in one
// pass over the sockets. The engine's thread adds requests; the first one of a step wakes the thread, which costs it one
// system call for a step instead of a goroutine's wakeup for a token.
//
// The thread waits in a system call of its own. A goroutine would be queued on the processor of the engine's thread,
// which goes on, until another processor has woken and stolen it: inline_write.go has the times.
type outbox struct {
	fd int // an eventfd

	mu       sync.Mutex
	running  bool       // the thread takes requests
	sleeping bool       // it waits in the kernel, or is about to
	listed   []*request // in the order in which they got tokens
	spare    []*request // an empty list
	ended    chan struct{}
}

// open starts the thread. Without it add refuses every request.
func (o *outbox) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	o.fd, o.running, o.ended = fd, true, make(chan struct{})
	go o.run()
	return nil
}

// close ends the thread after the requests that are listed.
func (o *outbox) close() {
	o.mu.Lock()
	running := o.running
	o.running = false
	o.wake()
	o.mu.Unlock()
	if running {
		<-o.ended
		_ = unix.Close(o.fd)
	}
}

// add lists a request that has tokens in its mailbox. It returns false, and does nothing, if no thread takes it.
func (o *outbox) add(r *request) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.running {
		return false
	}
	if r.listed {
		return true
	}
	r.listed = true
	r.c.listed.Add(1)
	o.listed = append(o.listed, r)
	o.wake()
	return true
}

// wake wakes the thread if it sleeps; o.mu is held.
func (o *outbox) wake() {
	if o.sleeping {
		o.sleeping = false
		one := [8]byte{1} // any positive number in the machine's byte order
		_, _ = unix.Write(o.fd, one[:])
	}
}

// run is the thread's loop.
func (o *outbox) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(o.ended)
	for list := o.take(); list != nil; list = o.take() {
		for _, r := range list {
			r.writeListed()
		}
		for _, r := range list { // connections whose further requests were listed too late for this pass
			r.c.writes.push()
		}
		clear(list)
	}
}

// take waits for requests and returns all that are listed; nil at the end.
func (o *outbox) take() []*request {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.listed) == 0 {
		if !o.running {
			return nil
		}
		o.sleeping = true
		o.mu.Unlock()
		var count [8]byte
		_, _ = unix.Read(o.fd, count[:])
		o.mu.Lock()
		o.sleeping = false
	}
	list := o.listed
	o.listed, o.spare = o.spare[:0], list
	for _, r := range list {
		r.listed = false
	}
	return list
}

// writeListed sends the tokens in the mailbox, as far as they need no work but their text. It leaves them to the
// request's goroutine if that is sending or has frames that the client did not take. The connection's last listed
// request sends the frames of them all.
func (r *request) writeListed() {
	last := r.c.listed.Add(-1) == 0
	if !r.putListed() {
		r.mailbox.notify()
	}
	if last {
		r.c.writes.push()
	}
}

// putListed puts the tokens' frames in the write queue. It returns false if something is left to the goroutine.
func (r *request) putListed() bool {
	if !r.sending.TryLock() {
		return false
	}
	defer r.sending.Unlock()
	if len(r.frames) > 0 {
		return false
	}
	tokens := r.mailbox.takeTokens()
	r.observe(len(tokens))
	for i := range tokens {
		r.addToken(&tokens[i])
	}
	if r.c.writes.put(r.frames) {
		return false // an overflow: the goroutine cuts the client
	}
	r.frames = r.frames[:0]
	return true
}
