package daemon

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/weights"
)

// watchWeights watches the weights' files, if any is mapped, until ended is closed. Checksums
// are taken in the background.
func watchWeights(l *assembly.Loaded, ended <-chan struct{}, log zerolog.Logger) {
	if l.Weights == nil {
		return
	}
	touched := func(file string) {
		log.Warn().Str("file", file).
			Msg("a file of the model was touched while it is served; its sampled pages are as they were")
	}
	go func() {
		if err := l.Weights.Run(ended, touched); err != nil {
			l.Fail(assembly.ModelChanged(err))
		}
	}()
}

// awaitWriter waits, after a change of the model's files, until no process writes them, so
// that the next start loads complete files. It keeps the service manager's watchdog content.
func awaitWriter(ctx context.Context, w *weights.Watch, err error, m Manager, log zerolog.Logger) {
	if w == nil || !errors.Is(err, weights.ErrChanged) {
		return
	}
	log.Error().Err(err).Msg("the generator waits until the model's files are written, and ends")
	m.Say("STATUS=the model's files have changed: waits until they are written, and ends")
	w.Rest(ctx, func() { m.Say("WATCHDOG=1") })
}
