//go:build linux

package main

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Of each message, so many lines come at once, and then so many a second.
const (
	floodBurst = 200
	floodRate  = 50
)

func init() {
	zerolog.TimestampFieldName, zerolog.MessageFieldName = "ts", "msg"
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
}

// flood keeps clients from filling the log: it is a hook that drops lines of a
// message that comes too often, each message by itself, so that a flood of one
// hides no other. The next line that passes says how many were left out.
type flood struct {
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*allowance // by message: the program's own, a few dozen
}

// allowance is how many lines of a message may come.
type allowance struct {
	lines   float64
	at      time.Time // when that was so
	leftOut uint64
}

func newFlood() *flood { return &flood{now: time.Now, kinds: map[string]*allowance{}} }

// Run drops the event, or adds to it how many like it were left out.
func (f *flood) Run(e *zerolog.Event, _ zerolog.Level, msg string) {
	if !e.Enabled() {
		return // dropped already
	}
	leftOut, passes := f.take(msg)
	switch {
	case !passes:
		e.Discard()
	case leftOut > 0:
		e.Uint64("left_out", leftOut)
	}
}

// take says whether a line may come, and how many were left out before it.
func (f *flood) take(msg string) (leftOut uint64, passes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, a := f.now(), f.kinds[msg]
	if a == nil {
		a = &allowance{lines: floodBurst, at: now}
		f.kinds[msg] = a
	}
	a.lines = min(floodBurst, a.lines+floodRate*now.Sub(a.at).Seconds())
	a.at = now
	if a.lines < 1 {
		a.leftOut++
		return 0, false
	}
	a.lines--
	leftOut, a.leftOut = a.leftOut, 0
	return leftOut, true
}
