//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// A message that comes too often is thinned out and counted; others are not, nor
// what a connection's own logger says.
func TestLogFloods(t *testing.T) {
	now := time.Unix(0, 0)
	f := newFlood()
	f.now = func() time.Time { return now }
	var out bytes.Buffer
	log := zerolog.New(&out).Hook(f)
	conn := log.With().Int("conn", 7).Logger()
	for range floodBurst + 1000 {
		conn.Info().Msg("refused")
	}
	log.Error().Msg("the generator ends")
	if n := strings.Count(out.String(), "refused"); n != floodBurst {
		t.Errorf("%d lines of a flood, want %d", n, floodBurst)
	}
	if !strings.Contains(out.String(), `{"level":"error","msg":"the generator ends"}`) {
		t.Error("another message was dropped")
	}
	out.Reset()
	now = now.Add(time.Second)
	for range 1000 {
		conn.Info().Msg("refused")
	}
	if n := strings.Count(out.String(), "refused"); n != floodRate || strings.Count(out.String(), `"left_out":1000`) != 1 {
		t.Errorf("%d lines a second later, want %d: %s", n, floodRate, out.String())
	}
}
