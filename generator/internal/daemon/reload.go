package daemon

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/protocol"
)

// Reloader applies changed settings while the generator serves.
type Reloader struct {
	Log     zerolog.Logger
	Level   *logging.Level
	Server  *server.Server
	Engine  *EngineActor
	Manager Manager
	// Settings reads the settings again at each reload; Now are those in force.
	Settings *config.Reader
	Now      config.Options

	began map[string]string // the texts of the settings with which the generator began
}

// Reload reads the settings again and applies those that can change at run time. If one is
// invalid, all stay as they are.
func (r *Reloader) Reload() {
	r.Manager.Say("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", monotonic().Microseconds()))
	defer r.Manager.Say("READY=1")
	if r.began == nil {
		r.began = r.Settings.Texts
	}
	o, err := r.Settings.Read()
	if err != nil {
		r.Log.Error().Err(err).Msg("the settings stay as they are")
		return
	}
	if err := r.Engine.resize(o); err != nil {
		r.Log.Error().Err(err).Msg("the graphs' budget stays as it is")
		o.MaxGraphs, o.GraphMemory = r.Now.MaxGraphs, r.Now.GraphMemory
	}
	if err := r.Engine.setTemplate(o.ChatTemplate); err != nil {
		r.Log.Error().Err(err).Msg("the chat template stays as it is")
		o.ChatTemplate = r.Now.ChatTemplate
	}
	for _, remark := range config.Misspelt(r.Settings.Names) {
		r.Log.Warn().Msg(remark)
	}
	r.Server.SetLimits(o.MaxConnections, o.MaxRequests)
	r.Level.Set(o.LogLevel)
	r.Now = o
	if later := config.NeedRestart(r.began, r.Settings.Texts); len(later) > 0 {
		r.Log.Warn().Strs("settings", later).Msg("restart the generator to change these")
	}
	r.Log.Info().Str("log_level", o.LogLevel).Int("max_graphs", o.MaxGraphs).Int64("graph_memory", o.GraphMemory).
		Int("max_connections", o.MaxConnections).Int("max_requests", o.MaxRequests).Msg("settings reloaded")
}

// monotonic returns the kernel's clock, which systemd compares with.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // Linux always has this clock
	return time.Duration(t.Nano())
}

var errLoading = errors.New("the model is still being loaded: reload again later")

// resize changes the budget of the engine's graphs. It fails while the model is loading.
func (a *EngineActor) resize(o config.Options) error {
	l := a.model()
	if l == nil {
		return errLoading
	}
	return l.Engine.Resize(o.MaxGraphs, o.GraphMemory/l.Model.Together()) // as at the start
}

// setTemplate reads the chat template again, from the file at path or, without a path, the model's own. It fails while
// the model is loading.
func (a *EngineActor) setTemplate(path string) error {
	l := a.model()
	if l == nil {
		return errLoading
	}
	return l.SetTemplate(path, func(c server.Chat, d *protocol.Sampling) error {
		if !a.Server.SetChat(c, d) {
			return errLoading
		}
		return nil
	})
}
