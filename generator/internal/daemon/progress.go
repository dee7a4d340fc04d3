package daemon

import (
	"io"
	"math"
	"time"

	"github.com/rs/zerolog"
	"github.com/schollz/progressbar/v3"

	"reel/generator/internal/logging"
)

// loadingLine is how long loading goes on before a log line says how far it is.
const loadingLine = 2 * time.Second

// NewProgress returns what shows how far loading is, 0 to 1, and what is being
// done: a bar where stderr is a terminal, log lines elsewhere. A log that is to tell
// nothing of this has neither.
func NewProgress(stderr *logging.Queue, log zerolog.Logger) func(share float64, what string) {
	switch {
	case log.GetLevel() > zerolog.InfoLevel:
		return func(float64, string) {}
	case stderr.Terminal():
		return barOn(stderr.Frames())
	}
	return linesOn(log, time.Now)
}

// barOn draws a bar that is gone when loading has ended.
func barOn(w io.Writer) func(share float64, what string) {
	const steps = 1000
	bar := progressbar.NewOptions(steps, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false))
	described := ""
	return func(share float64, what string) {
		if what != described {
			described = what
			bar.Describe(what)
		}
		_ = bar.Set(int(math.Round(steps * share))) // where it cannot be drawn nobody looks
	}
}

// linesOn writes a log line every loadingLine. A model that is there at once gets none.
func linesOn(log zerolog.Logger, now func() time.Time) func(share float64, what string) {
	last := now()
	return func(share float64, what string) {
		if now().Sub(last) < loadingLine {
			return
		}
		last = now()
		log.Info().Int("percent", int(100*share)).Str("doing", what).Msg("loading")
	}
}
