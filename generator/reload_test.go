//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"
)

// A level that changes holds for loggers made before, and what it drops is no part
// of a flood.
func TestLogLevelChanges(t *testing.T) {
	var out bytes.Buffer
	var level logLevel
	o := Options{LogLevel: "info", LogFormat: "json"}
	level.set(o)
	log := newLogger(&out, Options{LogLevel: "trace", LogFormat: "json"}, &level).With().Int("conn", 1).Logger()
	for range 2 * floodBurst {
		log.Debug().Msg("read")
	}
	if out.Len() > 0 {
		t.Fatalf("below the level: %.200s", out.String())
	}
	o.LogLevel = "debug"
	level.set(o)
	log.Debug().Msg("read")
	if text := out.String(); strings.Count(text, "\n") != 1 || strings.Contains(text, "left_out") {
		t.Errorf("got %s", text)
	}
}
