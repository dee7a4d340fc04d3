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
	if !m.holds(o.Socket) {
		return config.Refuse(config.ErrConfig, "--idle-exit %v: the service manager's socket is %s: set --socket to it",
			o.IdleExit, m.Socket.Addr())
	}
	return nil
}

// holds reports whether the manager's socket is the one at a path.
func (m Manager) holds(socket string) bool {
	own, err := filepath.Abs(socket)
	return err == nil && own == m.Socket.Addr().String()
}

// grace is the time between the record of sleep and the last accepted connection. A client
// that looked for the record just before is still answered, and does not wake the next generator.
const grace = 100 * time.Millisecond

// Sleeper ends a generator that nobody asks, as one actor of a run.Group.
type Sleeper struct {
	Server  *server.Server
	Journal Journal
	Manager Manager
	After   time.Duration // idle time; 0: only when a client asks
	Log     zerolog.Logger
	stop    chan struct{}
}

// Wakes reports whether the next connection starts the generator again after it slept: a service manager holds its
// socket. Without the record beside the socket a status request would wake it, so this process has to own that too.
func Wakes(m Manager, j Journal, socket string) bool {
	return m.Socket != nil && m.holds(socket) && j.Owned
}

// AddSleeper adds s to the group if wakes says that the generator may sleep.
func AddSleeper(g *run.Group, s Sleeper, wakes bool) {
	if !wakes {
		if s.After > 0 {
			s.Log.Warn().Msg("--idle-exit has no effect: another process owns the record beside the socket")
		}
		return
	}
	s.stop = make(chan struct{})
	g.Add(s.execute, func(error) { close(s.stop) })
}

// execute returns ErrSleep after the idle time, or when a client asks for it while nothing runs, or nil after stop.
func (s *Sleeper) execute() error {
	for {
		var due <-chan time.Time
		if s.After > 0 {
			due = time.After(max(s.After-s.Server.Idle(), grace))
		}
		slept := false
		select {
		case <-due:
			slept = s.Server.Idle() >= s.After && s.sleep(s.After)
		case ask := <-s.Server.SleepAsks():
			slept = s.sleep(ask.After)
			ask.Answer(slept)
		case <-s.stop:
			return nil
		}
		if slept {
			return ErrSleep
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

// sleep records the sleep and stops to accept connections. It reports false if a request came, or has ended within the
// time after.
func (s *Sleeper) sleep(after time.Duration) bool {
	s.Journal.Sleeping(nil)
	if s.stopped(grace) || !s.Server.Sleep(after) {
		s.Journal.Wake()
		return false
	}
	s.Manager.Say("STOPPING=1", "STATUS=sleeping: the next request starts it")
	return true
}
