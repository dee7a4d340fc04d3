package daemon

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/oklog/run"
	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/server"
)

// ErrSleep ends the group of a generator that sleeps. It is a clean end.
var ErrSleep = errors.New("nobody asked for the time of --idle-exit")

// CheckIdleExit refuses --idle-exit without a manager that starts the generator again.
func CheckIdleExit(o config.Options, m Manager) error {
	if o.IdleExit == 0 {
		return nil
	}
	if m.Socket == nil {
		return config.Refuse(config.ErrConfig, "--idle-exit %v: no service manager passes a socket, so nothing would "+
			"start the generator again: leave the setting out, or enable reel-generator.socket", o.IdleExit)
	}
	held := m.Socket.Addr().String()
	if own, err := filepath.Abs(o.Socket); err != nil || own != held {
		return config.Refuse(config.ErrConfig, "--idle-exit %v: the service manager's socket is %s: set --socket to it",
			o.IdleExit, held)
	}
	return nil
}

// grace is the time between the record of sleep and the last accepted connection. A client
// that looked for the record just before is still answered, and does not wake the next generator.
const grace = 100 * time.Millisecond

// Sleeper ends a generator that nobody asks, as one actor of a run.Group.
type Sleeper struct {
	Server  *server.Server
	Journal Journal
	Manager Manager
	After   time.Duration // idle time; 0: never
	Log     zerolog.Logger
	stop    chan struct{}
}

// AddSleeper adds s to the group, unless it never sleeps. Without the record a status request
// would wake the generator, so a generator that keeps no record does not sleep.
func AddSleeper(g *run.Group, s Sleeper) {
	if s.After == 0 {
		return
	}
	if !s.Journal.Owned {
		s.Log.Warn().Msg("--idle-exit has no effect: another process owns the record beside the socket")
		return
	}
	s.stop = make(chan struct{})
	g.Add(s.execute, func(error) { close(s.stop) })
}

// execute returns ErrSleep after the idle time, or nil after stop.
func (s *Sleeper) execute() error {
	for {
		idle := s.Server.Idle()
		if idle >= s.After && s.sleep() {
			return ErrSleep
		}
		if s.stopped(max(s.After-idle, grace)) {
			return nil
		}
	}
}

// stopped waits for d, and reports whether the group ended meanwhile.
func (s *Sleeper) stopped(d time.Duration) bool {
	select {
	case <-time.After(d):
		return false
	case <-s.stop:
		return true
	}
}

// sleep records the sleep and stops to accept connections. It reports false if a request came.
func (s *Sleeper) sleep() bool {
	s.Journal.Sleeping()
	if s.stopped(grace) || !s.Server.Sleep(s.After) {
		s.Journal.Wake()
		return false
	}
	s.Manager.Say("STOPPING=1", "STATUS=sleeping: the next request starts it")
	return true
}
