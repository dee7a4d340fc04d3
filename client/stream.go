package client

import (
	"context"
	"sync"
	"sync/atomic"
)

// stream queues the messages of one request until its loop takes them, so that a slow
// loop does not delay others. The bytes in all queues of a Client have a bound; beyond
// it [Client.dropLongest] drops the longest queue.
type stream struct {
	id        uint64
	embeds    bool          // an embedding is asked for, and no token
	allowance allowance     // what may still come; only the reading goroutine uses it
	ended     bool          // the last message has come; guarded by Client.mu
	queued    *atomic.Int64 // bytes in the queues of all streams

	mu     sync.Mutex
	queue  []queuedMessage // oldest first
	bytes  int64           // in queue
	closed bool            // accepts no more messages
	cause  error           // returned to the loop after closed; nil if the loop has left
	wake   chan struct{}   // holds an element after queue has grown, or after closed
}

// queuedMessage is a *Token, *Embedding, *Done or *Error with its size.
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
	if !s.closed {
		s.queue = append(s.queue, queuedMessage{message, size})
		s.bytes += size
		s.queued.Add(size)
	}
	s.mu.Unlock()
	s.signal()
}

// close drops the waiting messages and all later ones. The loop gets cause.
func (s *stream) close(cause error) {
	s.mu.Lock()
	s.queued.Add(-s.bytes)
	s.queue, s.bytes, s.closed, s.cause = nil, 0, true, cause
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

// size returns the waiting bytes.
func (s *stream) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// pop takes the oldest message, or nil if there is none. The error is that of close.
func (s *stream) pop() (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, s.cause
	}
	first := s.queue[0]
	s.queue[0] = queuedMessage{} // lets the garbage collector free the message
	s.queue = s.queue[1:]
	s.bytes -= first.bytes
	s.queued.Add(-first.bytes)
	return first.message, nil
}

// next waits for the next message. Messages that came before the connection was lost
// are returned first; nil without an error means that it is lost.
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
