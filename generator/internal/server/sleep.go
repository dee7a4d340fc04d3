package server

import (
	"sync"
	"time"

	"reel.internal/reel/protocol"
)

// activity is the work of clients, and the time at which the last of it ended.
type activity struct {
	mu   sync.Mutex
	busy int // requests that run and frames that are handled
	last time.Time
}

// begin counts a piece of work.
func (a *activity) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy++
}

// end ends a piece of work.
func (a *activity) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy--
	a.last = time.Now()
}

// idle returns the time since the last work, or 0 during work.
func (a *activity) idle() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy > 0 {
		return 0
	}
	return time.Since(a.last)
}

// isWork reports whether a decoded frame counts as work. hello and status do not: a client that
// watches sends both.
func isWork(msg any) bool {
	switch msg.(type) {
	case *protocol.Hello, *protocol.StatusRequest:
		return false
	}
	return true
}

// Idle returns the time since the server was ready, the last request ended, or the last frame
// other than hello and status was handled. It is 0 during a request, and unless the server is ready.
func (s *Server) Idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idleTime()
}

// idleTime is Idle; s.mu is held.
func (s *Server) idleTime() time.Duration {
	if s.phase.state != protocol.StateReady {
		return 0
	}
	for c := range s.conns {
		if !c.asked.Load() && time.Since(c.since) < s.bounds.helloTimeout {
			return 0 // its first request may be on the way
		}
	}
	return s.activity.idle()
}

// Sleep begins a drain if the server has been idle for the time after, and reports whether it
// did. Then every client is told, and connections that were not accepted stay in the queue of
// an inherited socket. Call it while Serve runs.
func (s *Server) Sleep(after time.Duration) bool {
	_ = s.listener.SetDeadline(time.Unix(1, 0)) // interrupts Serve, so that no connection is in its hands
	select {
	case <-s.rested:
	case <-s.closed:
		return false
	}
	slept := s.fallAsleep(after)
	if slept {
		_ = s.listener.Close()
	} else {
		_ = s.listener.SetDeadline(time.Time{})
	}
	s.resumed <- struct{}{}
	return slept
}

// rest lets Sleep decide while no connection is accepted.
func (s *Server) rest() {
	select {
	case s.rested <- struct{}{}:
		<-s.resumed
	case <-s.closed:
	}
}

// fallAsleep changes the state to draining if the server has been idle for the time after.
func (s *Server) fallAsleep(after time.Duration) bool {
	s.mu.Lock()
	if idle := s.idleTime(); idle == 0 || idle < after {
		s.mu.Unlock()
		return false
	}
	s.phase.state = protocol.StateDraining
	conns := s.connections()
	s.mu.Unlock()
	for _, c := range conns {
		c.send(errDraining())
	}
	return true
}
