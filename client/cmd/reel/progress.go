package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"reel.internal/reel/client"
)

// quietTime is how long reel waits for a generator before it says so on a terminal. Tests change it.
var quietTime = 300 * time.Millisecond

// progress shows on stderr what reel waits for: on a terminal, after quietTime, the reason
// why no generator answers yet; while a model loads, a bar that is redrawn on a terminal,
// and one line elsewhere.
type progress struct {
	wait time.Duration
	out  *output

	mu      sync.Mutex
	timer   *time.Timer // after quietTime
	reason  string
	shown   bool // the line is on the terminal, or was written elsewhere
	loading bool // the generator has answered that it loads
}

// startProgress returns a progress whose time begins now.
func startProgress(wait time.Duration) *progress {
	p := &progress{wait: wait, out: stderr(), reason: "it does not answer yet"}
	if p.out.terminal {
		p.timer = time.AfterFunc(quietTime, p.say)
	}
	return p
}

// say shows the reason unless the bar is shown.
func (p *progress) say() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loading || p.timer == nil {
		return
	}
	limit := ""
	if p.wait > 0 {
		limit = " up to " + p.wait.String()
	}
	p.line(fmt.Sprintf("reel: waiting%s for a generator: %s", limit, p.reason))
}

// retrying notes why the last attempt failed; it is an OnWait.
func (p *progress) retrying(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = cause(err, client.ErrNoGenerator)
	if errors.Is(err, client.ErrNoAnswer) {
		p.reason = "the process that holds the socket does not answer"
	}
}

// show shows the share done, 0 to 1, and the generator's message; it is an OnLoading.
func (p *progress) show(share float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loading = true
	switch {
	case p.out.draws():
		p.line("reel: " + bar(share) + " " + message)
	case !p.shown:
		p.line(fmt.Sprintf("reel: %s; waiting up to %s", message, p.wait))
	}
}

// line replaces a terminal's line, or writes one.
func (p *progress) line(text string) {
	p.shown = true
	if !p.out.draws() {
		fmt.Fprintln(p.out, oneLine(text))
		return
	}
	if width, _, err := term.GetSize(p.out.fd()); err == nil && width > 1 {
		text = cut(oneLine(text), width-1)
	}
	_ = p.out.draw(toLineStart, text, clearToEnd)
}

// clear clears a terminal's line. Nothing is shown afterwards, except a bar.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.out.draws() && p.shown {
		_ = p.out.draw(toLineStart, clearToEnd)
	}
}

// hide clears the line that say has shown, before another line is printed.
func (p *progress) hide() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out.draws() && p.shown && !p.loading {
		p.shown = false
		_ = p.out.draw(toLineStart, clearToEnd)
	}
}

// bar draws a share, 0 to 1.
func bar(share float64) string {
	const width = 20
	full := int(min(max(share, 0), 1) * width)
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", width-full) + "]"
}
