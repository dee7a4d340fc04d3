package client

import (
	"context"
	"sync"
	"sync/atomic"
)

// stream holds what came for one request until its loop takes it. One slow loop
// does not hold up the others' tokens: what waits has a bound in bytes, over all
// streams of a Client, and beyond it the longest queue is dropped.
type stream struct {
	id     uint64
	asked  asked         // of the request; the goroutine that reads counts it down
	ended  bool          // its last message came; Client.mu is held
	queued *atomic.Int64 // bytes in the queues of all streams

	mu    sync.Mutex
	came  []queuedMessage // oldest first
	bytes int64           // of came
	shut  bool            // takes no more
	why   error           // that the loop gets after shut; nil where it has left
	wake  chan struct{}   // holds one element when came has grown, or after shut
}

// queuedMessage is a *Token, *Done or *Error and the bytes that it takes.
type queuedMessage struct {
	message any
	bytes   int64
}

func newStream(queued *atomic.Int64) *stream {
	return &stream{queued: queued, wake: make(chan struct{}, 1)}
}

// push adds a message. It never blocks.
func (s *stream) push(message any) {
	size := sizeOf(message)
	s.mu.Lock()
	if !s.shut {
		s.came = append(s.came, queuedMessage{message, size})
		s.bytes += size
		s.queued.Add(size)
	}
	s.mu.Unlock()
	s.signal()
}

// close drops what waits, and all that comes later. The loop gets why.
func (s *stream) close(why error) {
	s.mu.Lock()
	s.queued.Add(-s.bytes)
	s.came, s.bytes, s.shut, s.why = nil, 0, true, why
	s.mu.Unlock()
	s.signal()
}

// signal wakes the loop.
func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// size is how many bytes wait.
func (s *stream) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// pop takes the oldest message, nil where there is none. The error is that of close.
func (s *stream) pop() (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.came) == 0 {
		return nil, s.why
	}
	first := s.came[0]
	s.came[0] = queuedMessage{} // the collector may have it at once
	s.came = s.came[1:]
	s.bytes -= first.bytes
	s.queued.Add(-first.bytes)
	return first.message, nil
}

// next waits for the next message. What came before the connection was lost is
// handed out first; nil with no error means that it is lost.
func (s *stream) next(ctx context.Context, lost <-chan struct{}) (any, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if message, err := s.pop(); message != nil || err != nil {
			return message, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		case <-lost:
			return s.pop()
		}
	}
}
