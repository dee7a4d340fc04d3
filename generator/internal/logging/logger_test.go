package logging

import (
	"bytes"
	"strings"
	"testing"
)

// A changed level applies to existing loggers. Lines below the level do not count against
// the rate limit.
func TestLevelChanges(t *testing.T) {
	var out bytes.Buffer
	q := NewQueue(&out)
	var level Level
	level.Set("info")
	log := New(q, Settings{Level: "trace", Format: "json"}, &level).With().Int("conn", 1).Logger()
	for range 2 * rateBurst {
		log.Debug().Msg("read")
	}
	q.Flush()
	if out.Len() > 0 {
		t.Fatalf("below the level: %.200s", out.String())
	}
	level.Set("debug")
	log.Debug().Msg("read")
	q.Flush()
	if text := out.String(); strings.Count(text, "\n") != 1 || strings.Contains(text, "left_out") {
		t.Errorf("got %s", text)
	}
}

// Text on a terminal is told from JSON there, and from text in a file.
func TestOnTerminal(t *testing.T) {
	_, write := terminal(t)
	for format, want := range map[string]bool{"auto": true, "console": true, "json": false} {
		if got := (Settings{Format: format}).OnTerminal(NewQueue(write)); got != want {
			t.Errorf("%s on a terminal: %t", format, got)
		}
		if (Settings{Format: format}).OnTerminal(NewQueue(new(bytes.Buffer))) {
			t.Errorf("%s in a file counts as a terminal", format)
		}
	}
}

// Milliseconds have three decimals.
func TestFloatsAreRounded(t *testing.T) {
	var out bytes.Buffer
	q := NewQueue(&out)
	log := New(q, Settings{Level: "info", Format: "json"})
	log.Info().Float64("took_ms", 0.9874759999999999).Msg("ready")
	q.Flush()
	if !strings.Contains(out.String(), `"took_ms":0.987,`) {
		t.Errorf("got %s", out.String())
	}
}

// A dumb terminal gets no colours and no bar.
func TestDumbTerminal(t *testing.T) {
	for name, draws := range map[string]bool{"xterm": true, "dumb": false} {
		t.Setenv("TERM", name)
		read, write := terminal(t)
		q := NewQueue(write)
		log := New(q, Settings{Level: "info", Format: "auto"})
		log.Info().Int("n", 1).Msg("ready")
		q.Flush()
		b := make([]byte, 200)
		n, err := read.Read(b)
		if text := string(b[:n]); err != nil || strings.Contains(text, "\x1b") == !draws || q.Draws() != draws {
			t.Errorf("TERM=%s: %q, %v", name, text, err)
		}
	}
}
