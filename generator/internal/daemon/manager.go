package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/config"
)

// Manager is the service manager that started the program. The zero value is no manager: it
// ignores notifications, passes no socket and has no watchdog.
type Manager struct {
	// tell sends lines of sd_notify(3).
	tell func(lines ...string)
	// watchdog is the longest time without a sign of life; 0: unlimited.
	watchdog time.Duration
	// Socket is a listening socket of the manager, or nil.
	Socket *net.UnixListener
}

// Systemd returns the manager that the environment describes. It takes the passed file
// descriptors, so it has to be called after the last exec.
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

// inherited returns the socket among the files that the manager passed, or nil if there are
// none. It closes the file.
func inherited(files []*os.File) (*net.UnixListener, error) {
	if len(files) == 0 {
		return nil, nil
	}
	if len(files) > 1 {
		return nil, config.Refuse(config.ErrConfig,
			"the service manager passes %d sockets: give reel-generator.socket one ListenStream", len(files))
	}
	defer files[0].Close() // FileListener makes a copy
	l, err := net.FileListener(files[0])
	if err != nil {
		return nil, config.Refuse(config.ErrConfig, "the socket of the service manager: %w", err)
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		err := config.Refuse(config.ErrConfig,
			"the service manager listens on %s: give reel-generator.socket a path in ListenStream", l.Addr())
		return nil, errors.Join(err, l.Close())
	}
	return unix, nil
}

// InheritedPath returns the path of the socket that a service manager has passed to this process, or "" if there is none
// or it has no path. It takes no file descriptor.
func InheritedPath(env func(string) string) string {
	const first = 3 // SD_LISTEN_FDS_START of sd_listen_fds(3)
	if env("LISTEN_PID") != strconv.Itoa(os.Getpid()) || env("LISTEN_FDS") != "1" {
		return ""
	}
	address, err := unix.Getsockname(first)
	if at, ok := address.(*unix.SockaddrUnix); err == nil && ok && filepath.IsAbs(at.Name) {
		return at.Name
	}
	return ""
}

// Say sends lines to the manager, if there is one.
func (m Manager) Say(lines ...string) {
	if m.tell != nil {
		m.tell(lines...)
	}
}

const (
	// patienceForProgress is the time that the manager is asked to wait for the next progress
	// of loading.
	patienceForProgress = time.Minute
	// betweenSigns is the least time between two messages about progress.
	betweenSigns = 250 * time.Millisecond
)

// loading returns a function that reports the progress of loading. Each report extends the
// time limit of the start, so the manager ends a load that stands still.
func (m Manager) loading(now func() time.Time) func(share float64, activity string) {
	var mu sync.Mutex
	var last time.Time
	said := ""
	return func(share float64, activity string) {
		mu.Lock()
		defer mu.Unlock()
		if activity == said && now().Sub(last) < betweenSigns {
			return
		}
		last, said = now(), activity
		m.Say(fmt.Sprintf("STATUS=%s, %.0f%%", activity, 100*share),
			fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", patienceForProgress.Microseconds()))
	}
}

// pulse shows that an engine is alive.
type pulse interface {
	// Heartbeat calls done after the engine completes its next step.
	Heartbeat(done func())
}

// watch sends the manager a sign of life after each completed step, at most four in a watchdog
// period, until stop is closed. If the engine hangs it sends none, so the manager restarts the
// program.
func (m Manager) watch(engine pulse, stop <-chan struct{}) {
	if m.watchdog == 0 {
		return
	}
	ticks := time.NewTicker(m.watchdog / 4)
	defer ticks.Stop()
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
		case <-ticks.C:
		case <-stop:
			return
		}
	}
}
