package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\ttext é €":       "plain\n\ttext é €",
		"\x1b]0;title\x07":        `\x1b]0;title\x07`,
		"a\rb\x00":                `a\rb\x00`,
		"\u009b2J\u007f":          `\u009b2J\u007f`,
		"a backslash \\ is plain": "a backslash \\ is plain",
	} {
		if got := escape(in, escapedInAnswer); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"a", "b\n", "a\n\nb"},
		{"a", "b\n\n", "a\n\nb\n"},
		{"a", "\n", "a"},
		{"a", "", "a"},
		{"", "b", "b"},
		{"a\n", "b", "a\n\n\nb"},
	} {
		if got := join(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

// TestReadInputEndsWithContext: Ctrl-C ends the wait for a writer that never comes.
func TestReadInputEndsWithContext(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	old := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = old }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readInput(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := readInput(t.Context(), missing); err == nil {
		t.Error("no error for a missing file")
	}
}

func TestReadTextIsBounded(t *testing.T) {
	if r := readText(endless{}); r.err == nil {
		t.Errorf("read %d bytes of an endless input", len(r.text))
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestWriteWithoutReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	out := textPrinter{w: w}
	if err := closedPipe(out.token(client.Token{Text: "x"})); !errors.Is(err, errClosedPipe) {
		t.Errorf("got %v", err)
	}
	if err := closedPipe(os.ErrPermission); errors.Is(err, errClosedPipe) {
		t.Errorf("another error became %v", err)
	}
}

func TestRate(t *testing.T) {
	done := func(tokens int, ttft, total float64) client.Done {
		return client.Done{
			Usage:  protocol.Usage{CompletionTokens: tokens},
			Timing: protocol.Timing{TTFTMS: ttft, TotalMS: total},
		}
	}
	for _, c := range []struct {
		done client.Done
		want float64
	}{
		{done(101, 20, 1020), 100},
		{done(1, 20, 20), 50},
		{done(0, 0, 0), 0},
		{done(5, 20, 20), 0},
	} {
		if got := rate(c.done); got != c.want {
			t.Errorf("%+v: %v, want %v", c.done, got, c.want)
		}
	}
}

func TestStartHint(t *testing.T) {
	unit := filepath.Join(t.TempDir(), "reel-generator.service")
	old := unitFiles
	unitFiles = []string{unit}
	defer func() { unitFiles = old }()
	if got, want := startHint(""), "start one: reel-generator"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := os.WriteFile(unit, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "start one: systemctl start reel-generator\nor, as yourself: reel-generator"
	if got := startHint(""); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := startHint("/a b/it's"), `start one: reel-generator --socket '/a b/it'\''s'`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSilentGeneratorIsNotStartedAgain: the hint for a silent generator is not to start
// another.
func TestSilentGeneratorIsNotStartedAgain(t *testing.T) {
	f := explain(fmt.Errorf("%w: %w: EOF", client.ErrNoGenerator, client.ErrNoAnswer), "")
	explained := strings.Contains(f.message, "does not answer") && strings.Contains(f.hint, "holds the socket")
	if f.exit != exitNoGenerator || !explained {
		t.Errorf("got %+v", f)
	}
}
