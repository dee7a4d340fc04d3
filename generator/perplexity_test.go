//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/measure"
)

func TestPerplexityCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("ROMEO:\nBut, soft! what light through yonder window breaks?\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	latin := file + "-latin"
	if err := os.WriteFile(latin, []byte("\ufffd caf\xe9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	var out bytes.Buffer
	f.program.stdout = &out
	code := f.program.run([]string{"perplexity", "--device", "host", "--window", "16", "--stride", "2", "--json", file, file})
	var p measure.Perplexity
	if err := json.Unmarshal(out.Bytes(), &p); err != nil || code != 0 || p.Window != 16 || p.Stride != 2 ||
		p.Characters != 118 || !(p.Perplexity > 1) {
		t.Errorf("exit code %d: %+v, %v: %s", code, p, err, f.stderr.String())
	}
	texts, err := readTexts(strings.NewReader("from stdin"), []string{"-", file})
	if err != nil || len(texts) != 2 || texts[0] != "from stdin" || !strings.HasPrefix(texts[1], "ROMEO") {
		t.Errorf("%q, %v", texts, err)
	}
	if _, err := readTexts(strings.NewReader("\xff"), []string{"-"}); err == nil ||
		!strings.HasPrefix(err.Error(), "standard input is not UTF-8 at byte 0") {
		t.Errorf("not UTF-8: %v", err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--window", "a", file}, failure.ExitUsage, "want a whole number: see reel-generator perplexity --help"},
		{nil, failure.ExitUsage, "needs a file"}, {[]string{file + "x"}, failure.ExitConfig, "no such file"},
		{[]string{filepath.Dir(file)}, failure.ExitConfig, "is a directory"},
		{[]string{file, latin}, failure.ExitConfig, latin + " is not UTF-8 at byte 7: convert it"},
		{[]string{"--window", "4096", file}, failure.ExitConfig, "2 to 1024 tokens"},
		{[]string{"--window", "4096", "--device", "host", file}, failure.ExitConfig, "--window 4096"},
	} {
		if code := f.program.run(append([]string{"perplexity"}, c.args...)); code != c.code ||
			!strings.Contains(f.stderr.String(), c.says) {
			t.Errorf("%v: exit code %d: %s", c.args, code, f.stderr.String())
		}
	}
}
