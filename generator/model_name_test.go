//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/tiny"
	"reel.internal/reel/protocol"
)

// inCache puts the embedded model into a Hugging Face cache of its own as org/name.
func inCache(t *testing.T) {
	t.Helper()
	hub := t.TempDir()
	t.Setenv("HF_HUB_CACHE", hub)
	if err := os.CopyFS(filepath.Join(hub, "models--org--name/snapshots/abc"), tiny.Files); err != nil {
		t.Fatal(err)
	}
}

// Each command takes a model's name, from a flag, the environment or the file of settings, and says in one line if a
// path has that name.
func TestCommandsTakeAModelsName(t *testing.T) {
	inCache(t)
	for _, command := range [][]string{{"plan"}, {"check", "--precapture", "1", "--max-seq-len", "64", "--max-batch", "1"},
		{"ops", "--decode", "1", "--prefill", "", "--max-seq-len", "64", "--context", "8", "--json"}} {
		f := newFixture(t)
		var out bytes.Buffer
		f.program.stdout = &out
		f.program.env = func(name string) string {
			return map[string]string{"REEL_MODEL": "org/name", "REEL_DEVICE": "host"}[name]
		}
		if code := f.program.run(command); code != 0 || !strings.Contains(out.String(), "org/name") || f.stderr.Len() > 0 {
			t.Errorf("%v: exit code %d: %s%s", command, code, out.String(), f.stderr.String())
		}
		if code := f.program.run([]string{command[0], "--model", "org/other"}); code != failure.ExitConfig ||
			!strings.Contains(f.stderr.String(), "hf download org/other,") {
			t.Errorf("%v: exit code %d: %s", command, code, f.stderr.String())
		}
	}
	f := newFixture(t)
	out := filepath.Join(t.TempDir(), "out.gguf")
	if code := f.program.run([]string{"convert", "org/name", out, "--to", "q8_0"}); code != 0 {
		t.Errorf("convert: exit code %d: %s", code, f.stderr.String())
	}
	t.Chdir(t.TempDir())
	if err := os.CopyFS("org/name", tiny.Files); err != nil {
		t.Fatal(err)
	}
	f = newFixture(t)
	code := f.program.run([]string{"plan", "--device", "host", "--model", "org/name"})
	if lines := f.stderr.String(); code != 0 || strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "is taken") {
		t.Errorf("exit code %d: %s", code, lines)
	}
}

// A generator serves a repository of the cache under its name.
func TestModelsNameIsServed(t *testing.T) {
	inCache(t)
	settings := filepath.Join(t.TempDir(), "settings")
	if err := os.WriteFile(settings, []byte("REEL_MODEL=org/name\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	f.program.load = assembly.Load
	f.start("--device", "host", "--settings", settings, "--max-seq-len", "64", "--max-batch", "1", "--max-graphs", "0")
	conn, frames := f.connect()
	for {
		f.send(conn, &protocol.StatusRequest{})
		s, ok := f.read(frames).(*protocol.Status)
		if ok && s.State == protocol.StateReady {
			if s.Model != "org/name" {
				t.Errorf("%+v", s)
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
	f.signals <- syscall.SIGTERM
	if code := f.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, f.stderr.String())
	}
}

// The service's user has no home directory: its settings need a path, or the place of a store.
func TestServiceNeedsAPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "generator.env")
	for _, c := range []struct{ line, model, says string }{
		{"", "/srv/models/x", ""}, {"", "org/name", "give the model's path"},
		{"", "ollama:llama3.2", "give the model's path"}, {"HF_HUB_CACHE=/srv/hub", "org/name", ""},
		{"#HF_HUB_CACHE=/srv/hub", "org/name", "give the model's path"},
	} {
		if err := os.WriteFile(file, []byte("REEL_MODEL=x\n"+c.line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		known, err := serviceSetting(file)("REEL_MODEL", c.model)
		if !known || (err == nil) != (c.says == "") || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%+v: %t, %v", c, known, err)
		}
	}
	if known, err := serviceSetting(file)("REEL_MAX_BATCH", "x"); !known || err == nil {
		t.Errorf("%t, %v", known, err)
	}
}
