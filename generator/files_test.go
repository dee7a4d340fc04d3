//go:build linux

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/tiny"
)

// special makes a file of each kind that is not regular.
var special = map[string]func(path string) error{
	"a named pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"a device":     func(path string) error { return os.Symlink("/dev/zero", path) },
	"a directory":  func(path string) error { return os.Mkdir(path, 0o700) },
	"a socket": func(path string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		return l.Close()
	},
}

// A start that meets a special file in a model directory or as its settings ends at once with
// 78 and names the file.
func TestSpecialFilesAreRefused(t *testing.T) {
	const mistral = "internal/model/testdata/mistral"
	for file, base := range map[string]string{
		"config.json": "", "generation_config.json": "", "tokenizer.json": "", "tokenizer_config.json": "",
		"chat_template.jinja": "", "model.safetensors": "", "model.safetensors.index.json": mistral,
		"model-00002-of-00003.safetensors": mistral, "settings": "",
	} {
		for kind, make := range special {
			t.Run(file+" is "+kind, func(t *testing.T) {
				f := newFixture(t)
				f.program.load = assembly.Load
				dir := modelWith(t, base, file, make)
				began := time.Now()
				f.start("--device", "host", "--model", dir, "--settings", filepath.Join(dir, "settings"))
				code := f.wait()
				if took := time.Since(began); code != failure.ExitConfig || took > patience/4 {
					t.Errorf("exit code %d after %v", code, took)
				}
				if log := f.stderr.String(); !strings.Contains(log, file+" is "+kind) {
					t.Errorf("it does not say what is wrong: %s", log)
				}
			})
		}
	}
}

// Commands that read a model refuse special files too.
func TestCommandsRefuseSpecialFiles(t *testing.T) {
	for _, command := range []string{"plan", "check", "ops"} {
		f := newFixture(t)
		args := []string{command, "--model", modelWith(t, "", "config.json", special["a named pipe"])}
		if command != "plan" {
			args = append(args, "--device", "host")
		}
		go func() { f.code <- f.program.run(args) }()
		if code := f.wait(); code != failure.ExitConfig ||
			!strings.Contains(f.stderr.String(), "config.json is a named pipe") {
			t.Errorf("%s: exit code %d: %s", command, code, f.stderr.String())
		}
	}
}

// modelWith returns a copy of a checkpoint, by default the embedded one, with file replaced by
// a special one.
func modelWith(t *testing.T, base, file string, special func(path string) error) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "reel") // short, because a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if base == "" {
		err = os.CopyFS(dir, tiny.Files)
	} else {
		err = os.CopyFS(dir, os.DirFS(base))
	}
	path := filepath.Join(dir, file)
	_ = os.Remove(path)
	if err == nil {
		err = special(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
