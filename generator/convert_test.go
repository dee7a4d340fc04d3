//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/logging"
	"reel.internal/reel/generator/tiny"
)

// runConvert runs the command convert, and returns its exit code and its two outputs.
func runConvert(t *testing.T, signals chan os.Signal, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := program{env: func(string) string { return "" }, stdout: &stdout, stderr: logging.NewQueue(&stderr),
		signals: signals}
	code = p.run(append([]string{"convert"}, args...))
	return code, stdout.String(), stderr.String()
}

// modelDir returns a directory with the embedded model, without some of its files.
func modelDir(t *testing.T, without ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shakespeare")
	if err := os.CopyFS(dir, tiny.Files); err != nil {
		t.Fatal(err)
	}
	for _, name := range without {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The command writes a file that the plan reads, with its tokenizer, and prints what was lost.
func TestConvertCommand(t *testing.T) {
	dir := modelDir(t)
	file := filepath.Join(t.TempDir(), "x.gguf")
	code, out, errs := runConvert(t, nil, dir, file, "--to", "q8_0")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, text := range []string{"shakespeare to q8_0: " + file, "MB/s", "embedding", "Q8_0", "2.000 MiB", "0.5",
		"bits a weight"} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"general.name", "shakespeare", "tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id"} {
		if !bytes.Contains(raw[:1<<20], []byte(text)) {
			t.Errorf("no %q in the file", text)
		}
	}
	var plan, stderr bytes.Buffer
	p := program{env: func(string) string { return "" }, stdout: &plan, stderr: logging.NewQueue(&stderr)}
	if code := p.run([]string{"plan", "--device", "host", "--model", file}); code != 0 {
		t.Errorf("plan: exit %d: %s", code, stderr.String())
	}
}

// Tokens that the checkpoint suppresses have no place in GGUF, and a warning names them.
func TestConvertSaysWhatIsLeftOut(t *testing.T) {
	dir := modelDir(t, "generation_config.json")
	raw := []byte(`{"suppress_tokens":[9,7]}`)
	if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := runConvert(t, nil, dir, filepath.Join(t.TempDir(), "x.gguf"), "--to", "q8_0")
	if code != 0 || !strings.Contains(errs, "GGUF has no place for the suppress_tokens") || !strings.Contains(errs, "[7 9]") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// Without a tokenizer.json the file has none, and a warning says so.
func TestConvertWithoutTokenizer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.gguf")
	code, _, errs := runConvert(t, nil, modelDir(t, "tokenizer.json"), file, "--to", "q4_0")
	raw, _ := os.ReadFile(file)
	if code != 0 || !strings.Contains(errs, "no tokenizer.json") || bytes.Contains(raw, []byte("tokenizer.ggml")) {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// Each failure has its exit code and its next step, and leaves no file.
func TestConvertFailures(t *testing.T) {
	dir, out := modelDir(t), t.TempDir()
	file := filepath.Join(out, "x.gguf")
	broken := modelDir(t)
	if err := os.WriteFile(filepath.Join(broken, "tokenizer.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	family := modelDir(t)
	if err := os.WriteFile(filepath.Join(family, "config.json"), []byte(`{"model_type":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	short := modelDir(t)
	if err := os.Truncate(filepath.Join(short, "model.safetensors"), 1<<16); err != nil {
		t.Fatal(err)
	}
	existing := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.WriteFile(existing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	interrupted := make(chan os.Signal, 1)
	interrupted <- syscall.SIGINT
	for name, c := range map[string]struct {
		args    []string
		signals chan os.Signal
		code    int
		text    string
	}{
		"no arguments":   {nil, nil, failure.ExitUsage, "convert --help"},
		"no .gguf":       {[]string{dir, filepath.Join(out, "x")}, nil, failure.ExitUsage, "ends in .gguf"},
		"unknown flag":   {[]string{dir, file, "--as", "q8_0"}, nil, failure.ExitUsage, "--as"},
		"unknown format": {[]string{dir, file, "--to", "q9"}, nil, failure.ExitConfig, "q4_0, q4_k_m, q8_0"},
		"no directory":   {[]string{out, file}, nil, failure.ExitConfig, "config.json"},
		"unknown family": {[]string{family, file}, nil, failure.ExitConfig, `model_type is "x"`},
		"short weights":  {[]string{short, file}, nil, failure.ExitConfig, "download the file again"},
		"tokenizer":      {[]string{broken, file}, nil, failure.ExitConfig, "tokenizer.json"},
		"interrupted":    {[]string{dir, file}, interrupted, failure.ExitFailure, "interrupt: " + file + " was not written"},
		"unwritable":     {[]string{dir, filepath.Join(out, "no", "x.gguf")}, nil, failure.ExitFailure, "no such file"},
		"existing":       {[]string{dir, existing}, nil, failure.ExitConfig, "--force"},
	} {
		if code, _, errs := runConvert(t, c.signals, c.args...); code != c.code || !strings.Contains(errs, c.text) {
			t.Errorf("%s: exit %d: %s", name, code, errs)
		}
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
