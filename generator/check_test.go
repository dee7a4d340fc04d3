//go:build linux

package main

import (
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/logging"
)

// checkWith runs the check command on a small lattice.
func checkWith(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr strings.Builder
	p := program{env: func(string) string { return "" }, stdout: &stdout, stderr: logging.NewQueue(&stderr)}
	code = p.run(append([]string{"check", "--device", "host", "--max-seq-len", "64", "--max-batch", "3"}, args...))
	return code, stdout.String(), stderr.String()
}

func TestCheckFindsTheEmbeddedModelReady(t *testing.T) {
	code, out, errs := checkWith(t, "--precapture", "1-2,20", "--verbose")
	if code != 0 || errs != "" || !strings.Contains(out, "16 graphs checked, 0 at fault") {
		t.Errorf("exit code %d, stderr %q, stdout %s", code, errs, out)
	}
	for _, want := range []string{"prefill 20", "decode 3", "mixed 2+62", "mixed 1+32", "qkv      ready", "sample   ready"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in %s", want, out)
		}
	}
}

func TestCheckWithGuard(t *testing.T) {
	code, out, errs := checkWith(t, "--precapture", "2,20", "--guard")
	if code != 0 || errs != "" || !strings.Contains(out, "15 graphs checked, 0 at fault") {
		t.Errorf("exit code %d, stderr %q, stdout %s", code, errs, out)
	}
}

// Check fails if a graph is missing, because it cannot be verified.
func TestCheckFailsWhereAGraphIsMissing(t *testing.T) {
	code, out, errs := checkWith(t, "--precapture", "1-2", "--max-graphs", "2")
	if code != failure.ExitFailure || !strings.Contains(out, "FAULT") || !strings.Contains(errs, "faults") {
		t.Errorf("exit code %d, stderr %q, stdout %s", code, errs, out)
	}
}

func TestCheckRefusesBadSettings(t *testing.T) {
	for _, args := range [][]string{{"--precapture", "0"}, {"--graph-memory", "-1"}, {"--model", "/nowhere"},
		{"--device", "cuda"}, {"--max-seq-len", "1"}} {
		if code, _, errs := checkWith(t, args...); code != failure.ExitConfig || errs == "" {
			t.Errorf("%v: exit code %d, stderr %q", args, code, errs)
		}
	}
}
