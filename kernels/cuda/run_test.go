//go:build !cuda

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fakeBundle makes a bundle whose test programs are shell scripts, and returns its folder.
func fakeBundle(t *testing.T) string {
	t.Helper()
	tree, bundle := t.TempDir(), t.TempDir()
	writeProgram(t, filepath.Join(tree, "commit"), "")
	writeProgram(t, filepath.Join(tree, "good/good.test"), `echo "in $(basename "$PWD"): $*"`)
	writeProgram(t, filepath.Join(tree, "deep/bad/bad.test"), "echo it broke; exit 3")
	writeProgram(t, filepath.Join(tree, "slow/slow.test"), "exec sleep 60")
	writeProgram(t, filepath.Join(tree, "without/without.test"), "exit 77")
	writeProgram(t, filepath.Join(tree, "sanitize"), `echo "$1 found it"; exit 9`)
	script, err := os.ReadFile("run")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "run"), script, 0o644); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(bundle, "bundle.tar.xz")
	if out, err := exec.Command("tar", "-C", tree, "-cf", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bundle
}

// The table has the result of each part; the last lines of a failed part come before it,
// and the log has everything that was printed.
func TestRunReportsEachPart(t *testing.T) {
	tests := []struct {
		name, env string
		parts     []string
		passes    bool
		want      []string // patterns
	}{
		{"pass", "RUN=TestThis", []string{"good"}, true, []string{`(?m)^good +pass +\d+ s$`}},
		{"failure beside", "RUN=.", []string{"good", "deep/bad"}, false,
			[]string{`it broke`, `\ndeep/bad +FAIL \(exit 3\) +\d+ s\ngood +pass`}},
		{"wrapped", "WRAP=false", []string{"good"}, false, []string{`good +FAIL \(exit 1\)`}},
		{"time limit", "LIMIT=1", []string{"slow"}, false, []string{`slow +FAIL \(over 1 s\)`}},
		{"no time left", "TOTAL=0", []string{"good"}, false, []string{`good +FAIL \(no time left\)`}},
		{"not run", "RUN=.", []string{"without"}, true, []string{`without +not run \(see the log\) +\d+ s`}},
		{"sanitizer", "RUN=.", []string{"memcheck", "good"}, false,
			[]string{`memcheck found it`, `memcheck +FAIL \(exit 9\)`}},
		{"absent programs", "RUN=.", []string{"check", "stream"}, false, []string{`check +FAIL`, `stream +FAIL`}},
		{"unknown part", "RUN=.", []string{"nonsense"}, false, []string{`no such part`}},
	}
	bundle := fakeBundle(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out := t.TempDir()
			programs := t.TempDir()
			writeProgram(t, filepath.Join(programs, "compute-sanitizer"), "")
			env := []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "OUT=" + out, test.env}
			stdout, stderr, err := runScript(env, filepath.Join(bundle, "run"), test.parts...)
			if (err == nil) != test.passes {
				t.Errorf("the script ended with %v: %s", err, stderr)
			}
			_, table, _ := strings.Cut(stdout, "\n") // after the line with the commit
			for _, want := range test.want {
				if !regexp.MustCompile(want).MatchString(table) {
					t.Errorf("%q is not in:\n%s", want, stdout)
				}
			}
			log, err := os.ReadFile(filepath.Join(out, "gpu.log"))
			printed := strings.Contains(string(log), "in good: -test.v -test.timeout 0 -test.run TestThis")
			if err != nil || (test.passes && test.name != "not run" && !printed) {
				t.Errorf("the log has: %s %v", log, err)
			}
		})
	}
}
