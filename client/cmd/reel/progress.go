package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// progress shows on stderr how a generator's loading goes on: as a bar in place
// on a terminal, elsewhere with one line.
type progress struct {
	wait     time.Duration
	terminal bool
	shown    bool
}

// show shows what share, 0 to 1, is done. The message may name it too.
func (p *progress) show(share float64, message string) {
	switch {
	case p.terminal:
		fmt.Fprintf(os.Stderr, "\rreel: %s %s\x1b[K", bar(share), escape(message))
	case !p.shown:
		fmt.Fprintf(os.Stderr, "reel: %s; waiting up to %s\n", escape(message), p.wait)
	}
	p.shown = true
}

// clear takes the line from a terminal.
func (p *progress) clear() {
	if p.terminal && p.shown {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

// bar draws share, 0 to 1.
func bar(share float64) string {
	const width = 20
	full := int(min(max(share, 0), 1) * width)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]"
}
