//go:build linux

package main

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"reel/generator/internal/server"
	"reel/protocol"
)

// engineActor loads the model and runs its engine, as one member of the group.
type engineActor struct {
	server *server.Server
	load   loader
	opts   Options
	log    zerolog.Logger
	// progress shows the operator how far loading is.
	progress func(share float64, what string)
	ctx      context.Context // of the loading
	cancel   context.CancelFunc

	mu      sync.Mutex
	stopped bool
	runner  engineRunner // once loaded
}

// execute loads, serves, and returns when the engine ends. Clients are told why
// where that is a failure.
func (a *engineActor) execute() error {
	l := a.loaded()
	if a.ctx.Err() != nil {
		return nil
	}
	if l.err != nil {
		a.server.Fail(l.err)
		return l.err
	}
	if !a.adopt(l.runner) {
		return nil
	}
	a.server.SetReady(l.model)
	if err := l.runner.Run(); err != nil {
		a.server.Fail(err)
		return err
	}
	return nil
}

// loading is what a load came to.
type loading struct {
	model  server.Model
	runner engineRunner
	err    error
}

// loaded loads the model. It returns early where the generator is to stop: a
// load that is under way then ends with the process.
func (a *engineActor) loaded() loading {
	begun := time.Now()
	done := make(chan loading, 1)
	go func() {
		m, runner, err := a.load(a.ctx, a.opts, func(share float64, what string) {
			a.server.SetProgress(share, what)
			a.progress(share, what)
		})
		done <- loading{m, runner, err}
	}()
	select {
	case l := <-done:
		if l.err == nil {
			a.log.Info().Str("model", l.model.Name).Str("device", l.model.Device).Int("context", l.model.Limits.Context).
				Int("max_batch", l.model.Limits.MaxBatch).Float64("took_ms", float64(time.Since(begun).Microseconds())/1000).Msg("ready")
			logGraphs(a.log, l.model.Engine.Stats().Graphs)
			logMemory(a.log, l.model)
		}
		return l
	case <-a.ctx.Done():
		return loading{err: a.ctx.Err()}
	}
}

// logGraphs tells what the graphs of the start took.
func logGraphs(log zerolog.Logger, g protocol.GraphPool) {
	log.Info().Uint64("graphs", g.Precaptured).Float64("took_ms", 1000*g.CaptureS).Float64("median_ms", g.CaptureMedianMS).
		Int64("bytes_each", g.GraphBytes).Uint64("failed", g.Failed).Msg("graphs captured")
}

// logMemory tells what the plan said beside what was taken.
func logMemory(log zerolog.Logger, m server.Model) {
	if m.Taken == nil {
		return
	}
	taken, by := m.Taken()
	log.Info().Str("planned", gib(m.Planned)).Str("taken", gib(taken)).Str("by", by).Int64("planned_bytes", m.Planned).Int64("taken_bytes", taken).Msg("memory")
}

// adopt makes runner the one that interrupt stops, unless that has been already.
func (a *engineActor) adopt(runner engineRunner) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return false
	}
	a.runner = runner
	return true
}

func (a *engineActor) interrupt(error) {
	a.cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	if a.runner != nil {
		a.runner.Stop()
	}
}
