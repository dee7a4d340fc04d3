package daemon

import (
	"io"
	"math"
	"time"

	"github.com/rs/zerolog"
	"github.com/schollz/progressbar/v3"

	"reel.internal/reel/generator/internal/logging"
)

// loadingLine is the time between two log lines about loading.
const loadingLine = 2 * time.Second

// NewProgress returns a function that shows the progress of loading, from 0 to 1, and the
// current activity: on a bar if stderr is a terminal, else in log lines. Above log level info
// it shows nothing.
func NewProgress(stderr *logging.Queue, log zerolog.Logger) func(share float64, activity string) {
	switch {
	case log.GetLevel() > zerolog.InfoLevel:
		return func(float64, string) {}
	case stderr.Draws():
		return barOn(stderr.Frames())
	}
	return linesOn(log, time.Now)
}

// barOn draws a progress bar, and removes it at the end.
func barOn(w io.Writer) func(share float64, activity string) {
	const steps = 1000
	bar := progressbar.NewOptions(steps, progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetPredictTime(false))
	described := ""
	return func(share float64, activity string) {
		if activity != described {
			described = activity
			bar.Describe(activity)
		}
		_ = bar.Set(int(math.Round(steps * share))) // without a terminal there is no bar to lose
	}
}

// linesOn writes a log line every loadingLine. A short load writes none.
func linesOn(log zerolog.Logger, now func() time.Time) func(share float64, activity string) {
	last := now()
	return func(share float64, activity string) {
		if now().Sub(last) < loadingLine {
			return
		}
		last = now()
		log.Info().Int("percent", int(100*share)).Str("doing", activity).Msg("loading")
	}
}
