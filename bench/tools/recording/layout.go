package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// piece is text in one row of the terminal that appears at once.
type piece struct {
	at          time.Duration
	row, column int
	text        string
	typed       bool
}

// frame is the time within which output appears at once, as on a screen.
const frame = time.Second / 60

// layout places events on a terminal of some columns, and returns its rows, too. Each character
// takes one column. An error names a control character other than \r before \n.
func layout(events []event, columns int) (pieces []piece, rows int, err error) {
	row, column := 0, 0
	for _, e := range events {
		at := e.at.Truncate(frame)
		for _, r := range strings.ReplaceAll(e.text, "\r\n", "\n") {
			switch {
			case r == '\n':
				row, column = row+1, 0
				continue
			case !unicode.IsPrint(r):
				return nil, 0, fmt.Errorf("the output has the control character %q", r)
			case column == columns:
				row, column = row+1, 0
			}
			last := len(pieces) - 1
			if last < 0 || !pieces[last].continues(at, row, e.typed) {
				pieces = append(pieces, piece{at: at, row: row, column: column, typed: e.typed})
				last++
			}
			pieces[last].text += string(r)
			column++
		}
	}
	return pieces, row + 1, nil
}

// continues reports whether a character at this time and row belongs to the piece.
func (p *piece) continues(at time.Duration, row int, typed bool) bool {
	return p.at == at && p.row == row && p.typed == typed
}
