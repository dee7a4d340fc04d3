package main

import (
	"fmt"
	"os"
	"time"
)

// progress shows on stderr how a generator's loading goes on: in place on a
// terminal, elsewhere with one line.
type progress struct {
	wait     time.Duration
	terminal bool
	shown    bool
}

func (p *progress) show(done float64, message string) {
	switch {
	case p.terminal:
		fmt.Fprintf(os.Stderr, "\rreel: %s, %.0f%%\x1b[K", escape(message), 100*done)
	case !p.shown:
		fmt.Fprintf(os.Stderr, "reel: %s, %.0f%%; waiting up to %s\n", escape(message), 100*done, p.wait)
	}
	p.shown = true
}

// clear takes the line from a terminal.
func (p *progress) clear() {
	if p.terminal && p.shown {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}
