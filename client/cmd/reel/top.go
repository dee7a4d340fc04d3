package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"reel.internal/reel/client"
)

// topCommand returns the command that shows the status repeatedly.
func (a *app) topCommand() *cobra.Command {
	t := &top{interval: time.Second}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch what the generator does",
		Long: "Watch what the generator does: requests, tokens per second, KV pages, graphs and\n" +
			"memory, updated once per interval. On a terminal q or Ctrl-C ends it; elsewhere, and\n" +
			"if TERM is dumb, each view is printed below the previous one. If the generator goes\n" +
			"away, top waits for it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t.options = client.Options{Socket: a.socket, Wait: a.wait, OnPeer: a.stranger.meet}
			t.stranger = a.stranger.text
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().Var((*seconds)(&t.interval), "interval", "time between two views, such as 500ms or 5s")
	cmd.Flags().IntVarP(&t.count, "count", "n", 0, "end after this many views (default: never)")
	return cmd
}

// top is a live view.
type top struct {
	options  client.Options
	interval time.Duration
	count    int // views; 0: endless
	view     topView
	stranger func() string // describes a foreign process that serves, if any
}

// shortest is the least time between two status requests, so that top causes little load.
const shortest = 50 * time.Millisecond

// run shows views until ctx ends, the count is reached or a key is pressed. It returns an
// error only if there is no generator at the beginning.
func (t *top) run(ctx context.Context) error {
	p := startProgress(t.options.Wait)
	t.options.OnWait = p.retrying
	s, err := client.ReadStatus(ctx, t.options)
	p.clear()
	if err != nil && !errors.Is(err, client.ErrSleeping) {
		return err
	}
	t.options.Wait = 0
	screen, quit, failed := openScreen()
	if failed != nil {
		return failed
	}
	defer screen.close()
	for shown := 1; ; shown++ {
		if err := screen.show(t.next(s, err)); err != nil {
			return closedPipe(err)
		}
		if shown == t.count {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quit:
			return nil
		case <-time.After(max(t.interval, shortest)):
		}
		if s, err = t.ask(ctx); errors.Is(err, context.Canceled) {
			return err
		}
	}
}

// next returns the next view, below a line about a stranger, if any.
func (t *top) next(s *client.Status, err error) []string {
	lines := t.view.next(s, err)
	if text := t.stranger(); text != "" {
		lines = append([]string{text}, lines...)
	}
	return lines
}

// ask requests the status, for at most an interval plus a second.
func (t *top) ask(ctx context.Context) (*client.Status, error) {
	limited, stop := context.WithTimeout(ctx, t.interval+time.Second)
	defer stop()
	s, err := client.ReadStatus(limited, t.options)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s, err
}

// screen shows views. A terminal is redrawn for each; any other output, and a terminal
// without control sequences (TERM=dumb), gets them one below the other.
type screen struct {
	w     *output
	keys  *term.State
	shown bool
}

// openScreen prepares standard output. A key that ends the view closes the channel.
func openScreen() (*screen, <-chan struct{}, error) {
	s, quit := &screen{w: stdout()}, make(chan struct{})
	if !s.w.draws() {
		return s, quit, nil
	}
	if isTerminal(os.Stdin) {
		keys, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return nil, nil, err
		}
		s.keys = keys
		go awaitQuit(os.Stdin, quit)
	}
	return s, quit, s.w.draw(enterScreen)
}

// awaitQuit closes quit at q, at Ctrl-C (a key in raw mode), or at the end of r.
func awaitQuit(r io.Reader, quit chan<- struct{}) {
	key := make([]byte, 1)
	for {
		if _, err := r.Read(key); err != nil || strings.IndexByte("qQ\x03\x04", key[0]) >= 0 {
			close(quit)
			return
		}
	}
}

// show shows lines as a view.
func (s *screen) show(lines []string) error {
	if !s.w.draws() {
		return s.append(lines)
	}
	width, height, err := term.GetSize(s.w.fd())
	if err != nil || width < 1 || height < 1 {
		width, height = 80, 24
	}
	parts := []any{toScreenStart}
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			parts = append(parts, nextRow)
		}
		parts = append(parts, cut(oneLine(line), width), clearToEnd)
	}
	return s.w.draw(append(parts, clearBelow)...)
}

// append writes a view below the previous one.
func (s *screen) append(lines []string) error {
	var b strings.Builder
	if s.shown {
		b.WriteString("\n")
	}
	for _, line := range lines {
		b.WriteString(oneLine(line) + "\n")
	}
	s.shown = true
	_, err := io.WriteString(s.w, b.String())
	return err
}

// cut returns the first width characters of line.
func cut(line string, width int) string {
	if r := []rune(line); len(r) > width {
		return string(r[:width])
	}
	return line
}

// close restores a terminal.
func (s *screen) close() {
	if !s.w.draws() {
		return
	}
	_ = s.w.draw(leaveScreen) // If this fails, the terminal has gone.
	if s.keys != nil {
		_ = term.Restore(int(os.Stdin.Fd()), s.keys)
	}
}
