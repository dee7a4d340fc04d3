package main

import (
	"fmt"
	"io"
	"time"

	"reel/protocol"
)

// shown ends a command that has said all on standard output.
type shown struct{ error }

// Unwrap is what ended it.
func (s shown) Unwrap() error { return s.error }

// showRecord prints why no generator answers, where one has left word of it. The
// exit code is that of err, which says that none does.
func showRecord(w io.Writer, r *protocol.Record, asJSON bool, err error) error {
	if r == nil {
		return err
	}
	if asJSON {
		if err := closedPipe(writeJSON(w, r)); err != nil {
			return err
		}
		return shown{err}
	}
	rows := append([][2]string{{"state", r.State}}, failureRows(r.Failure)...)
	rows = append(rows, [2]string{"generator", fmt.Sprintf("pid %d", r.PID)}, [2]string{"since", r.At.Local().Format(time.DateTime)})
	if err := writeRows(w, rows); err != nil {
		return err
	}
	return shown{err}
}

// failureRows say why a generator failed and what to do.
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
