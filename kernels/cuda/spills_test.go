//go:build !cuda

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The logs in testdata are output of ptxas 13.0 for sm_80 and sm_90a: probe spills nothing,
// greedy spills.
func TestSpills(t *testing.T) {
	const excused = "greedy sm_80 the test wants it\ngreedy sm_90a the test wants it\n"
	tests := []struct {
		name, exceptions, log string
		want                  string // part of stderr; empty if the script passes
	}{
		{"clean", "# nothing\n\n", "clean.log", ""},
		{"excused", excused, "spill.log", ""},
		{"another target's exception", "probe sm_120 the test wants it\n", "clean.log", ""},
		{"spill", "", "spill.log",
			"greedy for sm_80: 944 bytes of stack frame, 1700 of spill stores, 1908 of spill loads"},
		{"spill for one target", "greedy sm_80 the test wants it\n", "spill.log", "greedy for sm_90a: 928 bytes"},
		{"no reason", "greedy sm_80\ngreedy sm_90a the test wants it\n", "spill.log", "no reason in: greedy sm_80"},
		{"stale exception", excused, "clean.log", "greedy for sm_80 neither spills nor has a stack frame"},
		{"not verbose", "", "silent.log", "no kernel in the output of ptxas"},
		{"half a log", "", "half.log", "ptxas does not report the spills of probe for sm_80"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			exceptions := filepath.Join(t.TempDir(), "exceptions.txt")
			if err := os.WriteFile(exceptions, []byte(test.exceptions), 0o644); err != nil {
				t.Fatal(err)
			}
			_, stderr, err := runScript(nil, "spills", exceptions, filepath.Join("testdata", test.log))
			if (err == nil) != (test.want == "") || !strings.Contains(stderr, test.want) {
				t.Fatalf("the script said %v:\n%s\nwant: %s", err, stderr, test.want)
			}
		})
	}
}

// runScript runs a script of this folder with the environment env, or the test's if env is nil.
func runScript(env []string, script string, args ...string) (stdout, stderr string, err error) {
	command := exec.Command("/bin/sh", append([]string{script}, args...)...)
	command.Env = env
	var out, problems strings.Builder
	command.Stdout, command.Stderr = &out, &problems
	err = command.Run()
	return out.String(), problems.String(), err
}
