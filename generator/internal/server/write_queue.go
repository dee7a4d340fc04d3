package server

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	writeChunk = 64 << 10 // bytes of one Write; unsent bytes are counted in chunks of this size
	keepBuffer = 64 << 10 // capacity that the queue of an idle connection keeps
)

// errStalled ends a connection whose client does not read.
var errStalled = errors.New("server: the client does not read")

// writeQueue holds a connection's unsent frames. Any goroutine may add frames; adding
// never waits. If the queue is empty, add passes the frames to the kernel inline. The
// writer's goroutine sends the bytes that the kernel did not take, everything queued in
// one go.
type writeQueue struct {
	conn   net.Conn
	inline *socketWriter // nil: the writer sends everything
	limit  int           // unsent bytes
	stall  time.Duration // longest time without progress

	mu       sync.Mutex
	changed  sync.Cond // frames were queued, or closing was set
	drained  sync.Cond // unsent bytes have become fewer, or closing was set
	queued   []byte    // not yet taken by the writer
	begun    int       // the first bytes of queued, which a cut keeps: the client has the beginning of their first frame
	spare    []byte    // an empty buffer to queue into
	writing  int       // bytes that the writer took and the kernel has not
	closing  bool      // add drops frames; queued bytes are still written
	deadline time.Time // of writing, once closing is set
}

func newWriteQueue(conn net.Conn, limit int, stall time.Duration) *writeQueue {
	q := &writeQueue{conn: conn, limit: limit, stall: stall}
	q.changed.L, q.drained.L = &q.mu, &q.mu
	return q
}

// add queues whole frames. It reports an overflow, and queues nothing, if the client has
// fallen too far behind. A closing queue drops the frames. An empty queue takes frames of
// any length.
func (q *writeQueue) add(frames []byte) (overflow bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		return false
	}
	unsent := q.unsent()
	if unsent > 0 && unsent+len(frames) > q.limit {
		return true
	}
	if unsent == 0 && q.inline != nil && len(frames) > 0 {
		frames = q.pass(frames)
	}
	if len(frames) == 0 {
		return false
	}
	q.queued = append(q.queued, frames...)
	q.changed.Signal()
	return false
}

// put queues whole frames as add does, and leaves it to push to send them.
func (q *writeQueue) put(frames []byte) (overflow bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	unsent := q.unsent()
	switch {
	case q.closing:
		return false
	case unsent > 0 && unsent+len(frames) > q.limit:
		return true
	}
	q.queued = append(q.queued, frames...)
	return false
}

// push passes the queued frames to the kernel, as far as it takes them at once. The writer sends the rest.
func (q *writeQueue) push() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queued) == 0 {
		return
	}
	if q.writing == 0 && q.inline != nil && !q.closing {
		rest := copy(q.queued, q.pass(q.queued))
		q.queued = q.queued[:rest]
	}
	switch {
	case len(q.queued) > 0:
		q.changed.Signal()
	case cap(q.queued) > keepBuffer:
		q.queued = nil
	}
}

// pass passes frames to the kernel, as far as it takes them at once, and returns the rest, which becomes or stays the
// head of the queue; q.mu is held.
func (q *writeQueue) pass(frames []byte) (rest []byte) {
	rest = frames[q.inline.write(frames):]
	if len(rest) < len(frames) {
		q.begun = len(rest)
	}
	return rest
}

// unsent returns the number of bytes that the kernel has not taken; q.mu is held.
func (q *writeQueue) unsent() int { return len(q.queued) + q.writing }

// empty reports whether the kernel has taken every byte.
func (q *writeQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.unsent() == 0
}

// awaitRoom waits until at most half of the limit is unsent. It is for long answers,
// which would overflow the queue otherwise. It returns false once the queue is closing.
func (q *writeQueue) awaitRoom() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closing && q.unsent() > q.limit/2 {
		q.drained.Wait()
	}
	return !q.closing
}

// finish stops the writer after the queued frames, or after the stall time.
func (q *writeQueue) finish() { q.close(nil) }

// cut drops the queued frames but those that are on their way, queues last instead, and finishes.
func (q *writeQueue) cut(last []byte) {
	q.close(func() { q.queued = slices.Concat(q.queued[:q.begun], last) })
}

func (q *writeQueue) close(before func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		return
	}
	if before != nil {
		before()
	}
	q.closing, q.deadline = true, time.Now().Add(q.stall)
	q.changed.Signal()
	q.drained.Broadcast()
}

// run is the writer's loop. It returns nil after finish, or the error that ended writing.
func (q *writeQueue) run() error {
	for {
		frames, ok := q.take()
		if !ok {
			return nil
		}
		if err := q.write(frames); err != nil {
			q.abandon()
			return err
		}
	}
}

// take waits for frames and returns all that are queued; false after finish.
func (q *writeQueue) take() (frames []byte, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queued) == 0 && !q.closing {
		q.changed.Wait()
	}
	frames, q.queued = q.queued, q.spare
	q.writing, q.begun = len(frames), 0
	q.spare = nil
	if cap(frames) <= keepBuffer {
		q.spare = frames[:0]
	}
	return frames, len(frames) > 0
}

// write writes frames in chunks. It returns errStalled after the stall time without
// progress.
func (q *writeQueue) write(frames []byte) error {
	progress := time.Now()
	for len(frames) > 0 {
		_ = q.conn.SetWriteDeadline(time.Now().Add(q.stall / 5))
		n, err := q.conn.Write(frames[:min(len(frames), writeChunk)])
		frames = frames[n:]
		if n > 0 {
			progress = time.Now()
			q.written(n)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if q.timedOut(progress) {
			return errStalled
		}
	}
	return nil
}

// timedOut reports whether the last progress is a stall time ago, or a closing queue is
// past its deadline.
func (q *writeQueue) timedOut(progress time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	return now.Sub(progress) >= q.stall || q.closing && now.After(q.deadline)
}

// written counts n bytes that the kernel took.
func (q *writeQueue) written(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing -= n
	q.drained.Broadcast()
}

// abandon drops everything after a write has failed.
func (q *writeQueue) abandon() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closing, q.queued, q.writing, q.begun = true, nil, 0, 0
	q.drained.Broadcast()
}
