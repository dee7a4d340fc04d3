//go:build !cuda

package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeToolkit returns a folder with the nvcc of a release and, if header is true, cuda.h.
func fakeToolkit(t *testing.T, release string, header bool) string {
	t.Helper()
	root := t.TempDir()
	writeProgram(t, filepath.Join(root, "bin/nvcc"),
		fmt.Sprintf("echo Cuda compilation tools, release %s, V%s.1", release, release))
	if header {
		writeProgram(t, filepath.Join(root, "include/cuda.h"), "")
	}
	return root
}

// writeProgram writes a shell script and creates its folder.
func writeProgram(t *testing.T, path, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// withCompiler returns a folder for PATH that has a g++.
func withCompiler(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeProgram(t, filepath.Join(dir, "g++"), "")
	return dir
}

func TestToolkitTakesCudaHome(t *testing.T) {
	path := "PATH=" + withCompiler(t) + ":" + os.Getenv("PATH")
	for _, release := range []string{"12.0", "12.9", "13.0"} {
		home := fakeToolkit(t, release, true)
		stdout, stderr, err := runScript([]string{path, "CUDA_HOME=" + home}, "toolkit")
		if err != nil || stdout != home+"\n" {
			t.Errorf("CUDA %s: %q, %v: %s", release, stdout, err, stderr)
		}
	}
}

// An unusable CUDA_HOME is an error; the script does not fall back to another toolkit.
func TestToolkitRefuses(t *testing.T) {
	path := "PATH=" + withCompiler(t) + ":" + os.Getenv("PATH")
	tests := []struct{ name, path, home, want string }{
		{"an old one", path, fakeToolkit(t, "11.8", true), "which has no nvcc 12 or newer"},
		{"one without headers", path, fakeToolkit(t, "13.0", false), "with include/cuda.h"},
		{"none", path, "/nonexistent", "CUDA_HOME is /nonexistent"},
		{"no C++ compiler", "PATH=" + toolsOnly(t), fakeToolkit(t, "13.0", true), "apt-get install g++"},
	}
	for _, test := range tests {
		stdout, stderr, err := runScript([]string{test.path, "CUDA_HOME=" + test.home}, "toolkit")
		if err == nil || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: printed %q, %v: %q", test.name, stdout, err, stderr)
		}
	}
}

// toolsOnly returns a folder for PATH with the tools that the script calls, but no compiler.
func toolsOnly(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"dirname", "grep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
