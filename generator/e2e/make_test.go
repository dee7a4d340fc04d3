//go:build linux

package e2e

import (
	"fmt"
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
	bin := "BIN=" + made
	cmd := exec.Command("make", append([]string{"-C", "../..", "--no-print-directory", "run", bin,
		"VERSION=" + madeVersion}, args...)...)
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

// makeTarget runs a target of make with its programs outside of the tree.
func makeTarget(t *testing.T, args ...string) {
	t.Helper()
	must(t, runMake(args...))
}

// runMake is makeTarget without a test.
func runMake(args ...string) error {
	cmd := exec.Command("make", append([]string{"-C", "../..", "--no-print-directory",
		"BIN=" + installed, "MANUAL=" + filepath.Join(binaries, "manual")}, args...)...)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.Contains(name, "MAKE") && name != "MFLAGS" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// No default in a page is that of this user. Without cargo reel-format is not built, which takes minutes.
	cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR=/nowhere/7", "CARGO=/nowhere/cargo")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make %v: %w\n%s", args, err, out)
	}
	return nil
}

// make install installs programs, man pages and completions, which make uninstall removes.
func TestMakeInstall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs again")
	}
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("needs make")
	}
	root := tempDir(t)
	makeTarget(t, "install", "DESTDIR="+root, "PREFIX=/usr", "VERSION="+madeVersion)
	for _, name := range []string{"reel", "reel-generator", "reel-bench"} {
		page, err := os.ReadFile(filepath.Join(root, "usr/share/man/man1", name+".1"))
		must(t, err)
		for _, title := range []string{"EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"} {
			if !strings.Contains(string(page), "\n.SH "+title+"\n") {
				t.Errorf("%s has no section %s", name, title)
			}
		}
		if strings.Contains(string(page), "nowhere") {
			t.Errorf("%s has a default of this machine", name)
		}
		for _, file := range []string{"bash-completion/completions/" + name, "zsh/site-functions/_" + name,
			"fish/vendor_completions.d/" + name + ".fish"} {
			if info, err := os.Stat(filepath.Join(root, "usr/share", file)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", file, err)
			}
		}
		version, err := exec.Command(filepath.Join(root, "usr/bin", name), "--version").Output()
		if err != nil || !strings.Contains(string(version), madeVersion) {
			t.Errorf("%s: %s, %v", name, version, err)
		}
	}
	makeTarget(t, "uninstall", "DESTDIR="+root, "PREFIX=/usr")
	must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s is left", path)
		}
		return err
	}))
}

// make run prints only the passage, the same each time, for any prompt and any TMPDIR.
func TestMakeRun(t *testing.T) {
	t.Parallel()
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
