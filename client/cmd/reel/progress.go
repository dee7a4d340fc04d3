package main

import (
	"fmt"
	"strings"
	"time"
)

// progress shows on stderr how a generator's loading goes on: as a bar in place
// on a terminal, elsewhere with one line.
type progress struct {
	wait  time.Duration
	out   *output
	shown bool
}

// show shows what share, 0 to 1, is done. The message may name it too.
func (p *progress) show(share float64, message string) {
	switch {
	case p.out.terminal:
		_ = p.out.draw(toLineStart, "reel: "+bar(share)+" "+message, clearToEnd)
	case !p.shown:
		fmt.Fprintf(p.out, "reel: %s; waiting up to %s\n", oneLine(message), p.wait)
	}
	p.shown = true
}

// clear takes the line from a terminal.
func (p *progress) clear() {
	if p.out.terminal && p.shown {
		_ = p.out.draw(toLineStart, clearToEnd)
	}
}

// bar draws share, 0 to 1.
func bar(share float64) string {
	const width = 20
	full := int(min(max(share, 0), 1) * width)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]"
}
