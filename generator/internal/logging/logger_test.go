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
