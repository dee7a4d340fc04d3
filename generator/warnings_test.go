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
