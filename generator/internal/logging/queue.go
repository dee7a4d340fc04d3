package logging

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

// Bounds of a queue, and of the time that flushing takes.
const (
	maxLines  = 1024
	maxBytes  = 1 << 20
	maxFrames = maxLines / 4 // lines in a queue that still takes a progress bar's frame
	flushTime = time.Second
	retryTime = 10 * time.Millisecond
)

// Queue is a bounded queue of lines in front of a file that may stop taking them:
// a pipe that nobody reads, a suspended terminal, the socket of a stopped
// journald. One goroutine writes to the file; Write never waits for it.
//
// A line that does not fit is dropped. The queue then takes no line until it has
// written those it holds and a line that reports how many were dropped.
//
// The queue never sets O_NONBLOCK: the flag would hold for every process that
// shares the file, such as a shell. A blocked write can't be cancelled, so its
// goroutine may remain until the process exits.
type Queue struct {
	to io.Writer

	mu      sync.Mutex
	lines   [][]byte // the first is being written
	bytes   int      // of lines
	full    bool     // a line did not fit
	leftOut uint64   // dropped lines that are not reported yet
	report  func(leftOut uint64) []byte
	written chan struct{} // closed when the writing goroutine ends; nil without one
}

// NewQueue returns an empty queue in front of w.
func NewQueue(w io.Writer) *Queue { return &Queue{to: w, report: reporter(plain)} }

// Write queues a copy of line, or drops and counts it. It never waits and its
// error is always nil.
func (q *Queue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.take(line, maxLines) {
		q.full = true
		q.leftOut++
	}
	q.start()
	return len(line), nil
}

// Frames returns a writer for a progress bar. It shares the queue, so that lines
// and frames stay in order. Frames take a quarter of the queue at most; further
// ones are dropped and not counted.
func (q *Queue) Frames() io.Writer { return frames{q} }

type frames struct{ *Queue }

// Write queues a copy of a frame, or drops it.
func (f frames) Write(frame []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.take(frame, maxFrames) {
		f.start()
	}
	return len(frame), nil
}

// Terminal reports whether the file is a terminal.
func (q *Queue) Terminal() bool {
	f, ok := q.to.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Flush waits until every queued line has been written, for one second at most.
func (q *Queue) Flush() {
	q.mu.Lock()
	written := q.written
	q.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-time.After(flushTime):
	}
}

// take queues a copy of line if fewer than most lines are queued. The caller holds
// the lock, also for start.
func (q *Queue) take(line []byte, most int) bool {
	if q.full || len(q.lines) >= most || q.bytes+len(line) > maxBytes {
		return false
	}
	q.lines = append(q.lines, bytes.Clone(line))
	q.bytes += len(line)
	return true
}

// start starts the writing goroutine if none runs.
func (q *Queue) start() {
	if q.written == nil {
		q.written = make(chan struct{})
		go q.drain()
	}
}

// drain writes until nothing is queued or the file returns an error.
func (q *Queue) drain() {
	for {
		line, count := q.next()
		if line == nil || !q.finish(count, q.put(line)) {
			return
		}
	}
}

// next returns the next line, or the report of count dropped lines. It returns nil
// and ends the goroutine's turn when nothing is left.
func (q *Queue) next() (line []byte, count uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) > 0 && (q.full || q.leftOut == 0) {
		return q.lines[0], 0
	}
	count, q.leftOut, q.full = q.leftOut, 0, false
	if count > 0 {
		return q.report(count), count
	}
	q.end()
	return nil, 0
}

// finish removes a line that was written. After an error it drops and counts all
// queued lines, which would fail too, and returns false: the next call of Write
// starts again, with the report.
func (q *Queue) finish(count uint64, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.leftOut += count + uint64(len(q.lines))
		q.lines, q.bytes, q.full = nil, 0, false
		q.end()
		return false
	}
	if count == 0 {
		q.bytes -= len(q.lines[0])
		q.lines[0] = nil
		q.lines = q.lines[1:]
	}
	return true
}

// end tells Flush that the goroutine ends.
func (q *Queue) end() {
	close(q.written)
	q.written = nil
}

// put writes a line. Another process that shares the file may have set O_NONBLOCK
// on it; put then tries again until there is room.
func (q *Queue) put(line []byte) error {
	for {
		n, err := q.to.Write(line)
		if !errors.Is(err, syscall.EAGAIN) {
			return err
		}
		line = line[n:]
		time.Sleep(retryTime)
	}
}

// isFull reports whether the queue drops every line.
func (q *Queue) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.full
}
