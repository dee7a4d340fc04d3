//go:build linux

package main

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
)

// The engine's warnings are logged as they come, also one that its end leaves. Work that waits until requests are
// taken begins after the line that says so.
func TestLinesOfTheEngineAreLogged(t *testing.T) {
	f := newFixture(t)
	lines, serving := make(chan string, 2), make(chan bool, 1)
	f.program.load = func(c context.Context, o config.Options, p func(float64, string)) (*assembly.Loaded, error) {
		l, err := f.load(c, o, p)
		l.Lines = lines
		l.Serving = func() {
			f.program.stderr.Flush()
			serving <- strings.Contains(f.stderr.String(), `"msg":"ready"`)
		}
		return l, err
	}
	f.start("--log-format", "json")
	if !<-serving {
		t.Error("the work begins before the generator is ready")
	}
	lines <- "the tier is small"
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 || strings.Count(f.stderr.String(), `"msg":"the tier is small"`) != 1 {
		t.Errorf("exit %d: %s", code, f.stderr.String())
	}
}

// The log warns at start of parts of a model's directory that are missing.
func TestWarningsAreLogged(t *testing.T) {
	f := newFixture(t)
	f.program.load = func(c context.Context, o config.Options, p func(float64, string)) (*assembly.Loaded, error) {
		l, err := f.load(c, o, p)
		l.Warnings = []string{"no tokenizer.json"}
		return l, err
	}
	f.start("--log-format", "json")
	f.connect()
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 || !strings.Contains(f.stderr.String(), `"level":"warn"`) ||
		!strings.Contains(f.stderr.String(), "no tokenizer.json") {
		t.Errorf("exit %d: %s", code, f.stderr.String())
	}
}
