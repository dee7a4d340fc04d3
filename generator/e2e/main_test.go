//go:build linux

// Package e2e tries the generator and the client as a user runs them: the real
// binaries, the embedded model, a real socket. What one package can show alone
// is tested there.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// binaries is the folder of reel-generator, reel, reel-bench and, on a device that
// fails when it is told to, reel-generator-fault.
var binaries string

// device is what generators serve on: host, or what REEL_E2E_DEVICE names. Then
// the programs are those that were built before, in the folder REEL_E2E_BIN.
var device = "host"

func TestMain(m *testing.M) {
	// Under nohup a generator would ignore SIGHUP too, as it should, and tests of that
	// signal would not see what it does. What a process catches is as usual in its children.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	if other := os.Getenv("REEL_E2E_DEVICE"); other != "" {
		device, binaries = other, os.Getenv("REEL_E2E_BIN")
		return m.Run()
	}
	dir, err := os.MkdirTemp("/tmp", "reel-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	err = os.Chmod(dir, 0o755) // another user runs the client, in the test of denied
	for name, pkg := range map[string]string{"reel-generator": "reel/generator", "reel": "reel/client/cmd/reel", "reel-bench": "reel/bench/cmd/reel-bench"} {
		if err == nil {
			err = build(filepath.Join(dir, name), pkg)
		}
	}
	if err == nil {
		err = build(filepath.Join(dir, "reel-generator-fault"), "reel/generator", "-tags", "fault")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build builds pkg without cgo, or where the tests run under the race detector
// with it, so that a race in the generator fails the test that meets it.
func build(path, pkg string, flags ...string) error {
	args, cgo := append([]string{"build", "-buildvcs=false", "-o", path}, flags...), "CGO_ENABLED=0" // git may not trust the tree's owner
	if raceEnabled {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// scaled is n, or few where the tests are to be short.
func scaled(n, few int) int {
	if testing.Short() {
		return few
	}
	return n
}
