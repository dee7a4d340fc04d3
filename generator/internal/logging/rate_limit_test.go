package logging

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// The lines of one message are limited and counted together for the loggers of all
// connections. Another message is not limited.
func TestRateLimit(t *testing.T) {
	now := time.Unix(0, 0)
	r := newRateLimit(func() bool { return false })
	r.now = func() time.Time { return now }
	var out bytes.Buffer
	log := zerolog.New(&out).Hook(r)
	conn := log.With().Int("conn", 7).Logger()
	for range rateBurst + 1000 {
		conn.Info().Msg("refused")
	}
	log.Error().Msg("the generator ends")
	if n := strings.Count(out.String(), "refused"); n != rateBurst {
		t.Errorf("%d lines pass at once, want %d", n, rateBurst)
	}
	if !strings.Contains(out.String(), `{"level":"error","msg":"the generator ends"}`) {
		t.Error("another message was dropped")
	}
	out.Reset()
	now = now.Add(time.Second)
	for range 1000 {
		conn.Info().Msg("refused")
	}
	n := strings.Count(out.String(), "refused")
	if n != rateLines || strings.Count(out.String(), `"left_out":1000`) != 1 {
		t.Errorf("%d lines a second later, want %d: %s", n, rateLines, out.String())
	}
}

// While the queue drops lines, the number of dropped lines is kept for a later line.
func TestRateLimitKeepsItsCount(t *testing.T) {
	now, full := time.Unix(0, 0), true
	r := newRateLimit(func() bool { return full })
	r.now = func() time.Time { return now }
	for range rateBurst + 30 {
		r.take("refused")
	}
	now = now.Add(time.Second)
	if leftOut, passes := r.take("refused"); leftOut != 0 || !passes {
		t.Errorf("full: %d, %v", leftOut, passes)
	}
	full = false
	if leftOut, passes := r.take("refused"); leftOut != 30 || !passes {
		t.Errorf("%d, %v, want 30", leftOut, passes)
	}
}
