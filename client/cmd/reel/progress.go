package main

import (
	"fmt"
	"strings"
	"time"
)

// progress shows a generator's loading on stderr: a bar that is redrawn on a terminal,
// otherwise one line.
type progress struct {
	wait  time.Duration
	out   *output
	shown bool
}

// show shows the share done, 0 to 1, and the generator's message.
func (p *progress) show(share float64, message string) {
	switch {
	case p.out.terminal:
		_ = p.out.draw(toLineStart, "reel: "+bar(share)+" "+message, clearToEnd)
	case !p.shown:
		fmt.Fprintf(p.out, "reel: %s; waiting up to %s\n", oneLine(message), p.wait)
	}
	p.shown = true
}

// clear clears a terminal's line.
func (p *progress) clear() {
	if p.out.terminal && p.shown {
		_ = p.out.draw(toLineStart, clearToEnd)
	}
}

// bar draws a share, 0 to 1.
func bar(share float64) string {
	const width = 20
	full := int(min(max(share, 0), 1) * width)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]"
}
