//go:build linux

package main

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"reel/generator/internal/server"
)

// engineActor loads the model and runs its engine, as one member of the group.
type engineActor struct {
	server *server.Server
	load   loader
	opts   Options
	log    zerolog.Logger
	ctx    context.Context // of the loading
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	runner  engineRunner // once loaded
}

// execute loads, serves, and returns when the engine ends. Clients are told why
// where that is a failure.
func (a *engineActor) execute() error {
	m, runner, err := a.loaded()
	if a.ctx.Err() != nil {
		return nil
	}
	if err != nil {
		a.server.Fail(err)
		return err
	}
	if !a.adopt(runner) {
		return nil
	}
	a.server.SetReady(m)
	if err := runner.Run(); err != nil {
		a.server.Fail(err)
		return err
	}
	return nil
}

// loaded loads the model. It returns early where the generator is to stop: a
// load that is under way then ends with the process.
func (a *engineActor) loaded() (m server.Model, r engineRunner, err error) {
	begun := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		m, r, err = a.load(a.ctx, a.opts, a.server.SetProgress)
	}()
	select {
	case <-done:
	case <-a.ctx.Done():
		return server.Model{}, nil, a.ctx.Err()
	}
	if err == nil {
		a.log.Info().Str("model", m.Name).Str("device", m.Device).Int("context", m.Limits.Context).
			Int("max_batch", m.Limits.MaxBatch).Dur("took_ms", time.Since(begun)).Msg("ready")
	}
	return m, r, err
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
