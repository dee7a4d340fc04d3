package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"

	"reel/generator/internal/config"
)

// Manager is the service manager that started the program. The zero value is
// none: it hears nothing, hands over nothing and wants no sign of life.
type Manager struct {
	// tell sends lines of sd_notify(3).
	tell func(lines ...string)
	// watchdog is how long the manager waits for a sign of life; 0 is for ever.
	watchdog time.Duration
	// Socket is one that the manager listens on for the program.
	Socket *net.UnixListener
}

// Systemd is the manager as the environment describes it. It takes over the file
// descriptors, so it comes after the last exec.
func Systemd(log zerolog.Logger) (m Manager, err error) {
	m.tell = func(lines ...string) {
		if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
			log.Warn().Err(err).Msg("the service manager does not take notifications")
		}
	}
	if m.watchdog, err = daemon.SdWatchdogEnabled(true); err != nil {
		return m, config.Refuse(config.ErrConfig, "WATCHDOG_USEC in the environment: %w", err)
	}
	m.Socket, err = inherited(activation.Files(true))
	return m, err
}

// inherited is the socket among the files that the manager handed over, or nil
// where there are none.
func inherited(files []*os.File) (*net.UnixListener, error) {
	if len(files) == 0 {
		return nil, nil
	}
	if len(files) > 1 {
		return nil, config.Refuse(config.ErrConfig, "the service manager hands over %d sockets: give reel-generator.socket one ListenStream", len(files))
	}
	defer files[0].Close() // FileListener has a copy
	l, err := net.FileListener(files[0])
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "the socket of the service manager: %w", err)
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(config.Refuse(config.ErrConfig, "the service manager listens on %s: give reel-generator.socket a path in ListenStream", l.Addr()), l.Close())
	}
	return unix, nil
}

// Say is tell, where somebody listens.
func (m Manager) Say(lines ...string) {
	if m.tell != nil {
		m.tell(lines...)
	}
}

const (
	// patienceForProgress is how long the manager is asked to wait for the next
	// sign that loading goes on.
	patienceForProgress = time.Minute
	// betweenSigns is how often it is told so.
	betweenSigns = 250 * time.Millisecond
)

// loading returns what tells how far loading is. Each step of it extends the time
// that the manager allows for the start: loading that stands still is ended.
func (m Manager) loading(now func() time.Time) func(share float64, what string) {
	var mu sync.Mutex
	var last time.Time
	said := ""
	return func(share float64, what string) {
		mu.Lock()
		defer mu.Unlock()
		if what == said && now().Sub(last) < betweenSigns {
			return
		}
		last, said = now(), what
		m.Say(fmt.Sprintf("STATUS=%s, %.0f%%", what, 100*share),
			fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", patienceForProgress.Microseconds()))
	}
}

// pulse is what shows that an engine goes on.
type pulse interface {
	// Heartbeat calls done after the engine completes its next step.
	Heartbeat(done func())
}

// watch gives the manager signs of life until stop is closed: each follows a step
// that the engine has completed. An engine that hangs falls silent, whatever else
// the program still answers.
func (m Manager) watch(engine pulse, stop <-chan struct{}) {
	if m.watchdog == 0 {
		return
	}
	turns := time.NewTicker(m.watchdog / 4)
	defer turns.Stop()
	for {
		alive := make(chan struct{})
		engine.Heartbeat(func() { close(alive) })
		select {
		case <-alive:
			m.Say("WATCHDOG=1")
		case <-stop:
			return
		}
		select {
		case <-turns.C:
		case <-stop:
			return
		}
	}
}
