package daemon

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/logging"
)

func TestProgressInALog(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(0, 0)
	show := linesOn(zerolog.New(&out), func() time.Time { return clock })
	for i := range 11 {
		show(float64(i)/10, "loading the weights")
		clock = clock.Add(loadingLine / 4)
	}
	if got := strings.Count(out.String(), "\n"); got != 2 ||
		!strings.Contains(out.String(), `"percent":40,"doing":"loading the weights"`) {
		t.Errorf("%d lines, wants 2:\n%s", got, out.String())
	}
}

func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	show := barOn(&out)
	show(0.1, "loading the weights")
	show(0.5, "loading the weights")
	if !strings.Contains(out.String(), "loading the weights") || !strings.Contains(out.String(), "50%") {
		t.Errorf("%q", out.String())
	}
	show(1, "capturing graphs")
	if !strings.HasSuffix(out.String(), "\r") {
		t.Errorf("the bar is left: %q", out.String())
	}
}

// Without a terminal there is no bar; above level info there is no line.
func TestProgressElsewhere(t *testing.T) {
	var out bytes.Buffer
	q := logging.NewQueue(&out)
	NewProgress(q, zerolog.New(&out))(0.5, "loading")
	NewProgress(q, zerolog.New(&out).Level(zerolog.WarnLevel))(0.5, "loading")
	q.Flush()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}
