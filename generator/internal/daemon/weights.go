package daemon

import (
	"errors"

	"reel/generator/internal/assembly"
	"reel/generator/internal/weights"
)

// watchWeights begins to watch, where there is something to watch, until ended is
// closed. It takes the checksums in a goroutine, beside the start's last steps.
func (a *EngineActor) watchWeights(e assembly.Engine, ended <-chan struct{}) {
	w, ok := e.(assembly.WatchedEngine)
	if !ok {
		return
	}
	touched := func(file string) {
		a.Log.Warn().Str("file", file).
			Msg("a file of the model was touched while it is served; its sampled pages are as they were")
	}
	go func() {
		if err := w.Weights.Run(ended, touched); err != nil {
			w.Fail(assembly.ModelChanged(err))
		}
	}()
}

// awaitWriter waits, where the model's files have changed, until nobody writes them
// any more: the next start is to load whole files. The service manager is told that
// the generator has not hung meanwhile.
func (a *EngineActor) awaitWriter(e assembly.Engine, err error) {
	w, ok := e.(assembly.WatchedEngine)
	if !ok || !errors.Is(err, weights.ErrChanged) {
		return
	}
	a.Log.Error().Err(err).Msg("the generator waits until the model's files are written, and ends")
	a.Manager.Say("STATUS=the model's files have changed: waits until they are written, and ends")
	w.Weights.Rest(a.ctx, func() { a.Manager.Say("WATCHDOG=1") })
}
