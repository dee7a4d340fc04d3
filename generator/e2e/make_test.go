//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var timings = regexp.MustCompile(`(?m)^ttft [0-9.]+ ms · [0-9.]+ tok/s · total [0-9.]+ ms · `)

// makeRun runs `make run` and returns its standard output. Programs and temporary files stay out of the tree.
func makeRun(t *testing.T, args ...string) string {
	t.Helper()
	odd := filepath.Join(tempDir(t), "a folder $HOME", strings.Repeat("long", 25))
	must(t, os.MkdirAll(odd, 0o700))
	bin := "BIN=" + filepath.Join(binaries, "make")
	cmd := exec.Command("make", append([]string{"-C", "../..", "--no-print-directory", "run", bin}, args...)...)
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !strings.Contains(name, "MAKE") && name != "MFLAGS" && name != "PROMPT" && name != "BIN" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "TMPDIR="+odd, "REEL_MODEL=/nowhere")
	var stdout, stderr output
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("make run: %v\n%s", err, stderr.String())
	}
	if !timings.MatchString(stderr.String()) {
		t.Errorf("no timings in %q", stderr.String())
	}
	return stdout.String()
}

// make run prints only the passage, the same each time, for any prompt and any TMPDIR.
func TestMakeRun(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs again")
	}
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("needs make")
	}
	first := makeRun(t)
	if len(first) < 200 || !strings.HasPrefix(first, "ROMEO:") {
		t.Errorf("the passage is %q", first)
	}
	if again := makeRun(t); again != first {
		t.Errorf("the second run differs: %q, first %q", again, first)
	}
	prompt := "--a \"b\" 'c' $HOME $(d) `e` \\n\n#second line"
	if text := makeRun(t, "PROMPT="+prompt); !strings.HasPrefix(text, prompt) || len(text) < len(prompt)+200 {
		t.Errorf("the passage is %q, and should begin with %q", text, prompt)
	}
}
