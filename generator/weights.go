//go:build linux

package main

import (
	"errors"

	"reel/generator/internal/failure"
	"reel/generator/internal/server"
	"reel/generator/internal/weights"
)

// watchedEngine is an engine whose weights are read where their files are mapped.
type watchedEngine struct {
	engineRunner
	weights *weights.Watch
	fail    func(error) // ends the engine and its requests
}

// watchWeights has model and engine watch the files of c, where any is mapped.
func watchWeights(
	c *weights.Checkpoint, m server.Model, e engineRunner, fail func(error),
) (server.Model, engineRunner) {
	w := c.Watch()
	if w == nil {
		return m, e
	}
	m.Verify = func() error { return modelChanged(w.Verify()) }
	return m, watchedEngine{e, w, fail}
}

// modelChanged is err as clients hear of it; nil stays nil.
func modelChanged(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(failure.Explain(err), err)
}

// watchWeights begins to watch, where there is something to watch, until ended is
// closed. It takes the checksums in a goroutine, beside the start's last steps.
func (a *engineActor) watchWeights(e engineRunner, ended <-chan struct{}) {
	w, ok := e.(watchedEngine)
	if !ok {
		return
	}
	touched := func(file string) {
		a.log.Warn().Str("file", file).
			Msg("a file of the model was touched while it is served; its sampled pages are as they were")
	}
	go func() {
		if err := w.weights.Run(ended, touched); err != nil {
			w.fail(modelChanged(err))
		}
	}()
}

// awaitWriter waits, where the model's files have changed, until nobody writes them
// any more: the next start is to load whole files. The service manager is told that
// the generator has not hung meanwhile.
func (a *engineActor) awaitWriter(e engineRunner, err error) {
	w, ok := e.(watchedEngine)
	if !ok || !errors.Is(err, weights.ErrChanged) {
		return
	}
	a.log.Error().Err(err).Msg("the generator waits until the model's files are written, and ends")
	a.manager.say("STATUS=the model's files have changed: waits until they are written, and ends")
	w.weights.Rest(a.ctx, func() { a.manager.say("WATCHDOG=1") })
}
