//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/oklog/run"
	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/daemon"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/generator/internal/metrics"
	"reel.internal/reel/generator/internal/server"
	"reel.internal/reel/generator/internal/unixsocket"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

const (
	flushTime = 2 * time.Second // to write the KV pages of prompts to files, after the drain
	closeTime = 2 * time.Second // for clients to read their last frames
)

// errForced ends the group at the second signal, as config.ErrSignal does after a drain.
var errForced = errors.New("stopped by a second signal before requests had finished")

// serve runs the generator until a signal or a failure.
func (p *program) serve(o config.Options, settings *config.Reader) error {
	var level logging.Level
	level.Set(o.LogLevel)
	log := logging.New(p.stderr, logSettings(o), &level)
	if o.Socket == "" {
		// The lock and the record are those beside the socket that clients use, which may not be the default one.
		o.Socket = cmp.Or(daemon.InheritedPath(p.env), config.DefaultSocket())
	}
	inherits := p.env("LISTEN_FDS") != ""
	ends := p.patience + flushTime + closeTime
	lock, err := daemon.Own(o.Socket, inherits, ends, p.signals, log.Level(zerolog.TraceLevel))
	_, model, _ := assembly.ModelFiles(o) // an error comes again at the load
	journal := daemon.Journal{Path: protocol.RecordPath(o.Socket), Model: model, Log: log, Owned: lock != nil}
	if err == nil {
		journal.Wake()
		err = p.serveOn(log, &level, lock, journal, o, settings)
	}
	if lock != nil {
		defer lock.Release()
	}
	if errors.Is(err, daemon.ErrSleep) {
		log.Info().Msg("sleeps: the next request starts it")
		return nil
	}
	onDemand := inherits && o.IdleExit > 0 // the next connection starts it
	if err == nil || errors.Is(err, config.ErrSignal) {
		if journal.Clear(); onDemand {
			journal.Sleeping(nil)
		}
		log.Info().Msg("stopped")
		return nil
	}
	switch {
	case errors.Is(err, errForced):
	case onDemand && errors.Is(err, device.ErrBusy): // there may be room the next time
		journal.Sleeping(err)
	default:
		journal.Failed(err)
	}
	log.Error().Err(err).Msg("the generator ends")
	return config.OfKind(err, errLogged)
}

// logSettings returns the log's part of the settings.
func logSettings(o config.Options) logging.Settings {
	return logging.Settings{Level: o.LogLevel, Format: o.LogFormat}
}

// serveOn runs the parts of the generator as one group, with the socket's lock or without.
func (p *program) serveOn(
	log zerolog.Logger, level *logging.Level, lock *unixsocket.Lock, journal daemon.Journal,
	o config.Options, settings *config.Reader,
) error {
	progress := daemon.NewProgress(p.stderr, log)
	log = log.Level(zerolog.TraceLevel)
	if err := hardware.Choose(p.signals, log, p.stderr.Flush, &o); err != nil {
		return err
	}
	for _, remark := range config.Misspelt(slices.Concat(settings.Names, p.environ)) {
		log.Warn().Msg(remark)
	}
	listener, err := daemon.ListenMetrics(o.Metrics, log)
	if err != nil {
		return err
	}
	m, err := p.manager(log)
	if err != nil {
		return err
	}
	if err := daemon.CheckIdleExit(o, m); err != nil {
		return err
	}
	e := daemon.NewEngineActor(&daemon.EngineActor{
		Load: p.load, Options: o, Log: log, Manager: m, Journal: journal, Progress: progress})
	exporter := metrics.New(func() *protocol.Status { return e.Server.Status() }, e.Readings)
	wakes := daemon.Wakes(m, journal, o.Socket)
	s := server.New(server.Options{Socket: o.Socket, Lock: lock, Inherited: m.Socket, Wakes: wakes, AllowSleep: o.AllowSleep,
		Version: release(), Logger: log, Observer: exporter,
		QuietRequests: logSettings(o).OnTerminal(p.stderr)})
	e.Server = s
	if err := s.Listen(); err != nil {
		return config.Refuse(config.ErrConfig, "--socket: %w", err)
	}
	s.SetLimits(o.MaxConnections, o.MaxRequests)
	reload := (&daemon.Reloader{
		Log: log, Level: level, Server: s, Engine: e, Manager: m, Settings: settings, Now: o}).Reload
	var g run.Group // stopped in this order: the engine ends its requests, then the server closes
	g.Add(e.Execute, e.Interrupt)
	g.Add(s.Serve, func(error) { closeServer(s, log) })
	daemon.AddMetrics(&g, exporter, listener, log)
	daemon.AddSleeper(&g, daemon.Sleeper{Server: s, Journal: journal, Manager: m, After: o.IdleExit, Log: log}, wakes)
	stop := make(chan struct{})
	g.Add(func() error {
		return p.awaitSignal(s, e.Flush, func() {
			journal.Draining()
			m.Say("STOPPING=1", "STATUS=draining: running requests finish, new ones are refused")
		}, log, reload, stop)
	}, func(error) { close(stop) })
	return g.Run()
}

// closeServer gives clients some time to read their last frames.
func closeServer(s *server.Server, log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		log.Warn().Err(err).Msg("some clients did not take their last frames")
	}
}

// awaitSignal drains at the first signal and gives up at the second. Some supervisors send two
// at once: if nothing runs, that is a clean stop too. After the drain flush has until flushTime, or the second signal.
func (p *program) awaitSignal(
	s *server.Server, flush func(context.Context), draining func(), log zerolog.Logger, reload func(),
	stop <-chan struct{},
) error {
	sig := p.firstSignal(reload, stop)
	if sig == nil {
		return nil
	}
	log.Info().Stringer("signal", sig).Msg("draining: no new requests; a second signal stops at once")
	draining()
	ctx, cancel := context.WithTimeout(context.Background(), p.patience)
	defer cancel()
	drained := make(chan bool, 1) // whether all requests finished
	go func() { drained <- s.Drain(ctx) == nil }()
	select {
	case <-drained: // also after p.patience: the engine ends the requests that still run
		p.flush(flush)
		return config.ErrSignal
	case <-p.signals:
		cancel()
		if <-drained {
			return config.ErrSignal
		}
		return errForced
	case <-stop:
		return nil
	}
}

// flush calls do and waits for it for flushTime, or until a signal.
func (p *program) flush(do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	select {
	case <-done:
	case <-p.signals:
	}
}

// firstSignal returns the signal that ends the generator, or nil after stop. SIGHUP reloads
// the settings.
func (p *program) firstSignal(reload func(), stop <-chan struct{}) os.Signal {
	for {
		select {
		case sig := <-p.signals:
			return sig
		case <-p.hangups:
			reload()
		case <-stop:
			return nil
		}
	}
}
