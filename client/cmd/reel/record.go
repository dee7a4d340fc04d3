package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// printed is an error that was already reported on standard output.
type printed struct{ error }

// Unwrap returns the error.
func (s printed) Unwrap() error { return s.error }

// showRecord prints the record that a generator left, if any. The exit code remains that
// of err, which says that no generator answers; it is 0 for one that sleeps.
func showRecord(w io.Writer, r *protocol.Record, asJSON bool, err error) error {
	if r == nil {
		return err
	}
	if asJSON {
		if err := closedPipe(writeJSON(w, r)); err != nil {
			return err
		}
		return recorded(err)
	}
	rows := append([][2]string{{"state", stateText(r)}}, failureRows(r.Failure)...)
	if r.Model != "" {
		rows = append(rows, [2]string{"model", r.Model})
	}
	if r.PID != 0 {
		rows = append(rows, [2]string{"generator", fmt.Sprintf("pid %d", r.PID)},
			[2]string{"since", r.At.Local().Format(time.DateTime)})
	}
	if err := writeRows(w, rows); err != nil {
		return err
	}
	return recorded(err)
}

// recorded returns the error of a command that has printed the record.
func recorded(err error) error {
	if errors.Is(err, client.ErrSleeping) {
		return nil
	}
	return printed{err}
}

// sleepingText is the state of a generator that sleeps, and what wakes it.
const sleepingText = protocol.StateSleeping + ": the next request starts it"

// stateText returns the record's state, and for a sleeping generator what wakes it.
func stateText(r *protocol.Record) string {
	if r.State == protocol.StateSleeping {
		return sleepingText
	}
	return r.State
}

// failureRows describe why a generator failed and what to do.
func failureRows(f *protocol.Failure) [][2]string {
	if f == nil {
		return nil
	}
	rows := [][2]string{{"reason", f.Code + ": " + f.Message}}
	if f.Hint != "" {
		rows = append(rows, [2]string{"next", f.Hint})
	}
	return rows
}
