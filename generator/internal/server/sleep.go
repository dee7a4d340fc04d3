package server

import (
	"os"
	"slices"
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
// watches sends both. sleep asks for the opposite.
func isWork(msg any) bool {
	switch msg.(type) {
	case *protocol.Hello, *protocol.StatusRequest, *protocol.SleepRequest:
		return false
	}
	return true
}

// Idle returns the time since the server was ready, the last request ended, or the last frame
// other than hello, status and sleep was handled. It is 0 during a request, and unless the server is ready.
func (s *Server) Idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idleTime()
}

// idleTime is Idle; s.mu is held.
func (s *Server) idleTime() time.Duration {
	for c := range s.conns {
		if !c.asked.Load() && time.Since(c.since) < s.bounds.helloTimeout {
			return 0 // its first request may be on the way
		}
	}
	return s.activityIdle()
}

// activityIdle is the time since the last work, whatever new connections may ask; s.mu is held.
func (s *Server) activityIdle() time.Duration {
	if s.phase.state != protocol.StateReady {
		return 0
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
		if c.asksSleep.Load() {
			c.send(&protocol.Sleeping{})
		}
		c.send(errDraining())
	}
	return true
}

// SleepAsk is a client's request that the generator sleep.
type SleepAsk struct {
	After time.Duration // the least time since the last work
	slept chan bool
}

// Answer says whether the server sleeps.
func (a SleepAsk) Answer(slept bool) { a.slept <- slept }

// SleepAsks returns the channel of requests for sleep. Whoever takes one calls its Answer.
func (s *Server) SleepAsks() <-chan SleepAsk { return s.asks }

// sleep handles a request for sleep. The connection reads no further frame until it is decided.
func (c *conn) sleep(m *protocol.SleepRequest) *protocol.Error {
	if e := m.Validate(); e != nil {
		return e
	}
	if e := c.maySleep(); e != nil {
		return e
	}
	ask := SleepAsk{After: time.Duration(m.IdleS * float64(time.Second)), slept: make(chan bool, 1)}
	if idle := c.server.Idle(); idle == 0 || idle < ask.After {
		return errNotIdle(idle)
	}
	c.asksSleep.Store(true)
	defer c.asksSleep.Store(false)
	select {
	case c.server.asks <- ask:
		if <-ask.slept {
			return nil // fallAsleep has answered
		}
		return errNotIdle(c.server.Idle())
	case <-c.server.closing.Done():
		return errDraining()
	}
}

// maySleep returns the reason why the peer may not have the generator sleep, or why it never sleeps.
func (c *conn) maySleep() *protocol.Error {
	o := &c.server.opts
	if uid := c.peer.uid; uid != 0 && int(uid) != os.Getuid() && !slices.Contains(o.AllowSleep, uid) {
		return protocol.Errorf(protocol.CodeForbidden, "ask the generator's owner, who may allow it with --allow-sleep",
			"only the generator's own user, root and those of --allow-sleep may have it sleep")
	}
	if !o.Wakes {
		return protocol.Errorf(protocol.CodeNotActivated, "stop it, or start it by reel-generator.socket",
			"no service manager would start the generator again")
	}
	return nil
}

// errNotIdle refuses sleep after the time idle without work.
func errNotIdle(idle time.Duration) *protocol.Error {
	why := "a request runs, or a new connection may have one"
	if idle > 0 {
		why = "the last request ended " + idle.Round(time.Millisecond).String() + " ago"
	}
	return protocol.Errorf(protocol.CodeNotIdle, "ask again later", "%s", why)
}
