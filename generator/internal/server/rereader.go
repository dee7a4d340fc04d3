package server

import (
	"maps"
	"slices"
	"sync"

	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/protocol"
)

// Bounds of the answers that wait, and of the bytes that answers hold from the begin of their
// requests on; of a uid, and of all uids.
const (
	userAnswers     = 4
	maxAnswers      = 64
	userAnswerBytes = 4 << 20
	maxAnswerBytes  = 16 << 20
)

// rereader hands answers to the engine to be reread. A goroutine, which lives while answers
// wait, renders and tokenizes them while no request runs.
type rereader struct {
	mu      sync.Mutex
	waiting []*answer      // in order of arrival
	current *answer        // of the goroutine
	working bool           // the goroutine lives
	bytes   int            // that answers hold
	of      map[uint32]int // the same by uid
}

func newRereader() *rereader { return &rereader{of: map[uint32]int{}} }

// begin counts the memory of a request's answer, and returns the answer; nil if its user, or all
// users together, hold too much.
func (q *rereader) begin(a *answer) *answer {
	if a == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hold(a) {
		return nil
	}
	return a
}

// hold counts a's memory. It returns false, and counts nothing, if that is too much.
func (q *rereader) hold(a *answer) bool {
	n := a.bytes()
	if q.bytes+n > maxAnswerBytes || q.of[a.user.UID]+n > userAnswerBytes {
		return false
	}
	a.held = n
	q.bytes += n
	q.of[a.user.UID] += n
	return true
}

// letGo ends the count of a's memory.
func (q *rereader) letGo(a *answer) {
	q.bytes -= a.held
	if q.of[a.user.UID] -= a.held; q.of[a.user.UID] == 0 {
		delete(q.of, a.user.UID)
	}
	a.held = 0
}

// reread queues the answer of a request that has ended with a finish reason or error code, if
// that is an answer to go on from.
func (s *Server) reread(a *answer, reason string) {
	if a == nil {
		return
	}
	q := s.rereads
	q.mu.Lock()
	defer q.mu.Unlock()
	q.letGo(a)
	ended := reason == protocol.FinishStop || reason == protocol.FinishLength || reason == protocol.FinishToolCalls
	if !ended || !q.hold(a) {
		return
	}
	q.add(a)
	if !q.working {
		q.working = true
		go s.rereadAll()
	}
}

// add queues an answer, and drops the oldest past the bounds; of a uid, that of the name that has most.
func (q *rereader) add(a *answer) {
	q.waiting = append(q.waiting, a)
	n, names := 0, map[string]int{}
	for _, b := range q.waiting {
		if b.user.UID == a.user.UID {
			n++
			names[b.user.Name]++
		}
	}
	if n > userAnswers {
		most := slices.Max(slices.Collect(maps.Values(names)))
		q.drop(slices.IndexFunc(q.waiting, func(b *answer) bool {
			return b.user.UID == a.user.UID && names[b.user.Name] == most
		}))
	}
	if len(q.waiting) > maxAnswers {
		q.drop(0)
	}
}

// drop drops the i-th answer.
func (q *rereader) drop(i int) {
	q.letGo(q.waiting[i])
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

// forget drops the answers of a user, or of all users, whose requests have ended.
func (q *rereader) forget(user engine.User, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := len(q.waiting) - 1; i >= 0; i-- {
		if all || q.waiting[i].user == user {
			q.drop(i)
		}
	}
	if a := q.current; a != nil && (all || a.user == user) {
		a.forgotten = true
	}
}

// take ends the work on the current answer and returns the next. It returns nil if none waits, or
// if the server does not serve any more; then the goroutine ends.
func (q *rereader) take(serves bool) *answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.current != nil {
		q.letGo(q.current)
	}
	for !serves && len(q.waiting) > 0 {
		q.drop(0)
	}
	q.current = nil
	if q.working = len(q.waiting) > 0; q.working {
		q.current = q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	return q.current
}

// give hands the current answer's tokens to the engine, unless its user has dropped its pages.
func (q *rereader) give(tokens []int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a := q.current; !a.forgotten {
		a.model.Engine.Reread(a.user, tokens)
	}
}

// rereadAll hands the answers that wait to the engine, one after another.
func (s *Server) rereadAll() {
	for a := s.rereads.take(s.awaitIdle()); a != nil; a = s.rereads.take(s.awaitIdle()) {
		tokens := s.next(a)
		if len(tokens) > 0 && checkRows(tokens, a.model.Limits.Vocab) == nil {
			s.rereads.give(tokens)
		}
	}
}

// awaitIdle waits until no request runs. It reports whether the server still serves.
func (s *Server) awaitIdle() bool {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	<-idle // requests end at the latest with the engine
	_, e := s.serving()
	return e == nil
}
