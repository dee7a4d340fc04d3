//go:build linux

// Package e2e tests the generator and the client as a user runs them: the real programs, the embedded model, a real
// socket. Behaviour of a single package is tested in that package.
package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
)

// binaries is the folder of reel-generator, reel, reel-gateway and reel-bench, and of reel-generator-fault, which has
// a device that fails on a signal.
var binaries string

// made is the folder of the programs that make run starts in tests, and installed of those that make install copies.
var made, installed string

// madeVersion is the version that tests give to make.
const madeVersion = "1.2.3"

// device is the device that generators serve on: host, or the one in REEL_E2E_DEVICE. With REEL_E2E_DEVICE the
// programs are not built but taken from the folder REEL_E2E_BIN.
var device = "host"

func TestMain(m *testing.M) {
	// Under nohup the generator would rightly ignore SIGHUP too, and its tests would fail. A signal that this process
	// catches has its default action in child processes.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	runAtOnce()
	os.Exit(buildAndRun(m))
}

// runAtOnce sets how many of the tests that call t.Parallel run at once, unless the flag parallel does: more than there
// are processors, because these tests wait for most of their time. A GPU has room for one generator.
func runAtOnce() {
	const parallel = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	n := "4"
	if os.Getenv("REEL_E2E_DEVICE") != "" {
		n = "1"
	}
	if !given {
		_ = flag.Set(parallel, n) // package testing has it, and it takes any number
	}
}

// buildAndRun builds the programs, runs the tests, and returns the exit code.
func buildAndRun(m *testing.M) int {
	if other := os.Getenv("REEL_E2E_DEVICE"); other != "" {
		device, binaries = other, os.Getenv("REEL_E2E_BIN")
		made, installed = filepath.Join(binaries, "make"), filepath.Join(binaries, "install")
		return m.Run()
	}
	dir, err := os.MkdirTemp("/tmp", "reel-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	if err := errors.Join(os.Chmod(dir, 0o755), buildAll(dir)); err != nil { // TestExitCodes runs the client as another user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// buildAll builds the programs into dir: with make if these tests are built as make builds, and without it otherwise.
func buildAll(dir string) error {
	err := build(filepath.Join(dir, "reel-generator-fault"), "reel.internal/reel/generator", "-tags", "fault")
	made, installed = filepath.Join(dir, "make"), filepath.Join(dir, "install")
	programs := map[string]string{"reel-generator": "generator", "reel": "client/cmd/reel",
		"reel-bench": "bench/cmd/reel-bench", "reel-gateway": "client/cmd/reel-gateway"}
	if _, none := exec.LookPath("make"); none == nil && trimmed() && !raceEnabled {
		installed = made // tests of make find all built there, so that nothing is linked twice
		err = errors.Join(err, runMake("all", "VERSION="+madeVersion))
		for name := range programs {
			err = errors.Join(err, os.Link(filepath.Join(made, name), filepath.Join(dir, name)))
		}
		return err
	}
	for name, pkg := range programs {
		err = errors.Join(err, build(filepath.Join(dir, name), "reel.internal/reel/"+pkg))
	}
	return err
}

// build builds pkg without cgo. If the tests run under the race detector, it builds pkg with the race detector and
// cgo, so that a race in the generator fails the test.
func build(path, pkg string, flags ...string) error {
	// Without -buildvcs=false the build fails if git does not trust the tree's owner.
	args, cgo := append([]string{"build", "-buildvcs=false", "-o", path}, flags...), "CGO_ENABLED=0"
	if trimmed() {
		args = append(args, "-trimpath")
	}
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

// trimmed reports whether these tests were built with -trimpath, as make test builds them. Programs that are built in
// the same way, and those of the Makefile, share what the compiler has cached.
func trimmed() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-trimpath", Value: "true"})
}

// scaled returns n, or few with -short.
func scaled(n, few int) int {
	if testing.Short() {
		return few
	}
	return n
}
