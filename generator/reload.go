//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"reel/generator/internal/config"
	"reel/generator/internal/logging"
	"reel/generator/internal/server"
)

// reloader takes up changed settings while the generator serves.
type reloader struct {
	log     zerolog.Logger
	level   *logging.Level
	server  *server.Server
	engine  *engineActor
	manager manager
	// settings are read anew at each reload; now are those in force.
	settings *config.Reader
	now      config.Options
}

// reload reads the settings again and takes up those that a generator can change
// as it runs. Where they cannot be read, or one is refused, the old ones stay.
func (r *reloader) reload() {
	r.manager.say("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", monotonic().Microseconds()))
	defer r.manager.say("READY=1")
	before := r.settings.Texts
	o, err := r.settings.Read()
	if err != nil {
		r.log.Error().Err(err).Msg("the settings stay as they are")
		return
	}
	if err := r.engine.resize(o); err != nil {
		r.log.Error().Err(err).Msg("the graphs' budget stays as it is")
		o.MaxGraphs, o.GraphMemory = r.now.MaxGraphs, r.now.GraphMemory
	}
	r.server.SetLimits(o.MaxConnections, o.MaxRequests)
	r.level.Set(o.LogLevel)
	r.now = o
	if later := config.NeedRestart(before, r.settings.Texts); len(later) > 0 {
		r.log.Warn().Strs("settings", later).Msg("restart the generator to change these")
	}
	r.log.Info().Str("log_level", o.LogLevel).Int("max_graphs", o.MaxGraphs).Int64("graph_memory", o.GraphMemory).
		Int("max_connections", o.MaxConnections).Int("max_requests", o.MaxRequests).Msg("settings reloaded")
}

// monotonic is the kernel's clock that systemd compares with.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // there is always one
	return time.Duration(t.Nano())
}

// resize gives the engine's graphs another budget, once it is there.
func (a *engineActor) resize(o config.Options) error {
	a.mu.Lock()
	runner := a.runner
	a.mu.Unlock()
	if runner == nil {
		return errors.New("the model is still being loaded: reload again later")
	}
	return runner.Resize(o.MaxGraphs, o.GraphMemory)
}
