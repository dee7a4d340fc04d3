package client

import (
	"context"
	"sync"
)

// stream holds what came for one request until its loop takes it. It has no
// bound of its own: a request's messages are bounded by the context's length,
// and one slow loop must not hold up the others' tokens.
type stream struct {
	id   uint64
	mu   sync.Mutex
	came []any         // *Token, *Done, *Error, oldest first
	wake chan struct{} // holds one element when came has grown
}

func newStream() *stream {
	return &stream{wake: make(chan struct{}, 1)}
}

// push adds a message. It never blocks.
func (s *stream) push(message any) {
	s.mu.Lock()
	s.came = append(s.came, message)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pop takes the oldest message, nil where there is none.
func (s *stream) pop() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.came) == 0 {
		return nil
	}
	message := s.came[0]
	s.came = s.came[1:]
	return message
}

// next waits for the next message. What came before the connection was lost is
// handed out first; nil with no error means that it is lost.
func (s *stream) next(ctx context.Context, lost <-chan struct{}) (any, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if message := s.pop(); message != nil {
			return message, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		case <-lost:
			return s.pop(), nil
		}
	}
}
