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

// Bounds of a queue.
const (
	maxLines  = 1024
	maxBytes  = 1 << 20
	maxFrames = maxLines / 4          // a queue with this many lines drops a progress bar's frames
	flushTime = time.Second           // the longest wait of Flush
	retryTime = 10 * time.Millisecond // between writes to a full file in non-blocking mode
)

// Queue is a bounded queue of lines in front of a file that may block: a pipe without a
// reader, a suspended terminal, the socket of a stopped journald. One goroutine writes to
// the file; Write never waits for it.
//
// A line that does not fit is dropped. Then the queue drops every line until it has written
// the queued lines and a line that reports the number of dropped ones.
//
// The queue never sets O_NONBLOCK: the flag would apply to every process that shares the
// file, such as a shell. A blocked write cannot be cancelled, so its goroutine may remain
// until the process exits.
type Queue struct {
	file io.Writer

	mu      sync.Mutex
	lines   [][]byte // the first is being written
	bytes   int      // of lines
	full    bool     // a line did not fit
	leftOut uint64   // dropped lines that are not reported yet
	report  func(leftOut uint64) []byte
	done    chan struct{} // closed when the writing goroutine ends; nil: none runs
}

// NewQueue returns an empty queue in front of w.
func NewQueue(w io.Writer) *Queue { return &Queue{file: w, report: reporter(plain)} }

// Write queues a copy of line, or drops and counts it. It never waits, and its error is
// always nil.
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

// Frames returns a writer for a progress bar's frames, which stay in order with the lines.
// If a quarter of the queue is in use, frames are dropped and not counted.
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
	f, ok := q.file.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Draws reports whether the file is a terminal on which control sequences work.
func (q *Queue) Draws() bool { return q.Terminal() && os.Getenv("TERM") != "dumb" }

// Flush waits until every queued line is written, for one second at most.
func (q *Queue) Flush() {
	q.mu.Lock()
	done := q.done
	q.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(flushTime):
	}
}

// take queues a copy of line if fewer than most lines are queued; q.mu is held.
func (q *Queue) take(line []byte, most int) bool {
	if q.full || len(q.lines) >= most || q.bytes+len(line) > maxBytes {
		return false
	}
	q.lines = append(q.lines, bytes.Clone(line))
	q.bytes += len(line)
	return true
}

// start starts the writing goroutine if none runs; q.mu is held.
func (q *Queue) start() {
	if q.done == nil {
		q.done = make(chan struct{})
		go q.drain()
	}
}

// drain writes until the queue is empty or the file returns an error.
func (q *Queue) drain() {
	for {
		line, count := q.next()
		if line == nil || !q.finish(count, q.writeFile(line)) {
			return
		}
	}
}

// next returns the next line, or the report of count dropped lines. If there is neither, it
// returns nil, and the writing goroutine has ended.
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

// finish removes the written line; count is the second result of next. After an error it
// drops and counts all queued lines, since they would fail too, and returns false. The next
// call of Write starts again, with the report.
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

// end tells Flush that the writing goroutine ends; q.mu is held.
func (q *Queue) end() {
	close(q.done)
	q.done = nil
}

// writeFile writes a line. If another process has set O_NONBLOCK on the shared file, it
// retries until the file has room.
func (q *Queue) writeFile(line []byte) error {
	for {
		n, err := q.file.Write(line)
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
