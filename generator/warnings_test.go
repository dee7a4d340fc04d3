//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
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

// A variable that is nearly a setting is named in the log, once, and again where SIGHUP finds one in the settings file.
// Commands name it on stderr.
func TestMisspeltVariablesAreNamed(t *testing.T) {
	f := newFixture(t)
	file := filepath.Join(t.TempDir(), "settings")
	if err := os.WriteFile(file, []byte("REEL_MODL=/srv/m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hangups := make(chan os.Signal)
	f.program.hangups = hangups
	f.program.environ = []string{"REEL_MODL=/srv/m", "REEL_MAX_BATHC=3", "REEL_GATEWAY_FLAGS=--verbose", "HOME=/root"}
	f.start("--log-format", "json", "--settings", file)
	f.connect()
	if err := os.WriteFile(file, []byte("REEL_LOG_LEVL=info\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hangups <- syscall.SIGHUP
	f.signals <- syscall.SIGTERM
	code := f.wait()
	for _, one := range []string{"MODL", "MAX_BATHC", "LOG_LEVL"} {
		if strings.Count(f.stderr.String(), `\"REEL_`+one+`\" is no setting and is ignored: did you mean REEL_`) != 1 {
			t.Errorf("%s: exit %d: %s", one, code, f.stderr.String())
		}
	}
	if strings.Count(f.stderr.String(), "did you mean") != 3 {
		t.Errorf("%s", f.stderr.String())
	}
	f.stderr.Reset()
	if code := f.program.run([]string{"plan", "--device", "host"}); code != 0 ||
		!strings.Contains(f.stderr.String(), `reel-generator: "REEL_MODL" is no setting and is ignored: did you mean REEL_MODEL?`) {
		t.Errorf("plan: exit %d: %s", code, f.stderr.String())
	}
}
