// Package logging writes the generator's log: format, level, a rate limit, and a queue,
// so that no goroutine waits for the log's reader.
package logging

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

func init() {
	zerolog.TimestampFieldName, zerolog.MessageFieldName = "ts", "msg"
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	zerolog.FloatingPointPrecision = 3 // all floats are milliseconds
	// Without a handler zerolog writes write errors to stderr, which may block.
	zerolog.ErrorHandler = func(error) {}
}

// Settings are a logger's level, as for [zerolog.ParseLevel], and its format: json,
// console, or auto, which is console on a terminal and json otherwise.
type Settings struct{ Level, Format string }

// OnTerminal reports whether lines written to q go to a terminal as text, where the answers of
// a client may be printed too.
func (s Settings) OnTerminal(q *Queue) bool { return q.Terminal() && s.Format != "json" }

// New returns a logger that writes to q. Lines that the hooks discard do not count against
// the rate limit.
func New(q *Queue, s Settings, hooks ...zerolog.Hook) zerolog.Logger {
	format := plain
	if s.Format == "console" || s.Format == "auto" && q.Terminal() {
		format = func(w io.Writer) io.Writer {
			return zerolog.ConsoleWriter{Out: w, NoColor: !q.Draws(), TimeFormat: time.TimeOnly}
		}
	}
	q.mu.Lock()
	q.report = reporter(format)
	q.mu.Unlock()
	level, _ := zerolog.ParseLevel(s.Level) // the flag accepts valid names only
	limit := newRateLimit(q.isFull)
	return zerolog.New(format(q)).Level(level).With().Timestamp().Logger().Hook(append(hooks, limit)...)
}

// plain is the format json.
func plain(w io.Writer) io.Writer { return w }

// reporter returns a function that formats the line that reports dropped lines.
func reporter(format func(io.Writer) io.Writer) func(leftOut uint64) []byte {
	return func(leftOut uint64) []byte {
		var line bytes.Buffer
		log := zerolog.New(format(&line)).With().Timestamp().Logger()
		log.Warn().Uint64("left_out", leftOut).Msg("log lines were dropped")
		return line.Bytes()
	}
}

// Level is a hook that discards lines below a level. It may change while the logger is
// used; the logger's own level cannot, and must be [zerolog.TraceLevel].
type Level struct{ level atomic.Int32 }

// Set sets the level by its name, as in [Settings].
func (l *Level) Set(name string) {
	level, _ := zerolog.ParseLevel(name)
	l.level.Store(int32(level))
}

// Run discards an event below the level.
func (l *Level) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if level < zerolog.Level(l.level.Load()) {
		e.Discard()
	}
}
