package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

const (
	writeChunk = 64 << 10 // bytes of one Write: what is unsent is known this finely
	keepBuffer = 64 << 10 // capacity that an idle connection keeps
)

// errStalled ends a connection whose client takes nothing.
var errStalled = errors.New("server: the client does not read")

// outbox holds the frames that wait to be written to one connection. Anybody
// adds, and never waits. Where nothing waits, what is added goes to the kernel at
// once; what that does not take one goroutine writes, all that is there at once.
type outbox struct {
	conn  net.Conn
	now   *socketWriter // nil where everything is left to the goroutine
	limit int           // bytes unsent
	stall time.Duration // without progress

	mu       sync.Mutex
	ready    sync.Cond // something to write, or closing
	room     sync.Cond // less unsent, or closed
	pending  []byte
	spare    []byte
	inflight int       // bytes taken by the writer and not yet by the kernel
	closing  bool      // takes no more; what is there is still written
	until    time.Time // when closing, the end of patience
}

func newOutbox(conn net.Conn, limit int, stall time.Duration) *outbox {
	o := &outbox{conn: conn, limit: limit, stall: stall}
	o.ready.L, o.room.L = &o.mu, &o.mu
	return o
}

// add queues whole frames. It says whether the client has fallen too far
// behind to take them; then the outbox is unchanged. A closed outbox drops them.
func (o *outbox) add(frames []byte) (overflow bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		return false
	}
	unsent := len(o.pending) + o.inflight
	if unsent > 0 && unsent+len(frames) > o.limit {
		return true
	}
	if unsent == 0 && o.now != nil && len(frames) > 0 {
		frames = frames[o.now.write(frames):]
	}
	if len(frames) == 0 {
		return false
	}
	o.pending = append(o.pending, frames...)
	o.ready.Signal()
	return false
}

// empty tells whether the kernel has taken all that was added.
func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending)+o.inflight == 0
}

// awaitRoom waits until at most half of the limit is unsent, for a sender that
// has much to say at once and can wait. It is false once the outbox is closed.
func (o *outbox) awaitRoom() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closing && len(o.pending)+o.inflight > o.limit/2 {
		o.room.Wait()
	}
	return !o.closing
}

// finish writes what is there, for as long as a write may stall, and ends the writer.
func (o *outbox) finish() { o.close(nil) }

// cut replaces what is not yet being written by last, then finishes.
func (o *outbox) cut(last []byte) { o.close(func() { o.pending = append([]byte(nil), last...) }) }

func (o *outbox) close(before func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		return
	}
	if before != nil {
		before()
	}
	o.closing, o.until = true, time.Now().Add(o.stall)
	o.ready.Signal()
	o.room.Broadcast()
}

// write is the writer's loop. It returns nil after finish, or what ended the writing.
func (o *outbox) write() error {
	for {
		frames, ok := o.next()
		if !ok {
			return nil
		}
		if err := o.send(frames); err != nil {
			o.drop()
			return err
		}
	}
}

// next waits for frames and takes all of them.
func (o *outbox) next() (frames []byte, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.pending) == 0 && !o.closing {
		o.ready.Wait()
	}
	frames, o.pending = o.pending, o.spare
	o.inflight = len(frames)
	o.spare = nil
	if cap(frames) <= keepBuffer {
		o.spare = frames[:0]
	}
	return frames, len(frames) > 0
}

// send writes frames in chunks, with patience while the client takes some.
func (o *outbox) send(frames []byte) error {
	progress := time.Now()
	for len(frames) > 0 {
		_ = o.conn.SetWriteDeadline(time.Now().Add(o.stall / 5))
		n, err := o.conn.Write(frames[:min(len(frames), writeChunk)])
		frames = frames[n:]
		if n > 0 {
			progress = time.Now()
			o.sent(n)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if o.impatient(progress) {
			return errStalled
		}
	}
	return nil
}

// impatient tells whether the last progress is too long ago, or the time of a
// closing outbox is up.
func (o *outbox) impatient(progress time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	return now.Sub(progress) >= o.stall || o.closing && now.After(o.until)
}

func (o *outbox) sent(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inflight -= n
	o.room.Broadcast()
}

// drop ends an outbox whose connection is gone.
func (o *outbox) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closing, o.pending, o.inflight = true, nil, 0
	o.room.Broadcast()
}
