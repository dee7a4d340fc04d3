//go:build !cuda

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A target's kernels go to the images, an image that has none is removed, an unchanged one keeps its time, and a target
// without an index is refused.
func TestCollect(t *testing.T) {
	work := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	collect := func() error {
		c := exec.Command("sh", "collect", filepath.Join(work, "images"), filepath.Join(work, "sm_80"), filepath.Join(work, "compute_90"))
		c.Env = append(os.Environ(), "CUDA_HOME="+work)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	}
	// Writes its options to the file that it creates, without this folder's name.
	write("bin/fatbinary", `#!/bin/sh
for option; do case $option in --create=*) to=${option#*=} ;; --image3=*) echo "${option%%,file=*},${option##*/}" ;; esac; done >"`+work+`/options"
cp "`+work+`/options" "$to"
`)
	write("sm_80/index", "reel_a common\nreel_b q4_k\n")
	write("sm_80/common", "")
	write("sm_80/q4_k", "")
	write("compute_90/index", "reel_a common\nreel_c common\n")
	write("compute_90/common", "")
	write("images/old.fatbin", "")
	if err := collect(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"index":         "reel_a common\nreel_b q4_k\nreel_c common\n",
		"common.fatbin": "--image3=kind=elf,sm=80,common\n--image3=kind=ptx,sm=90,common\n",
		"q4_k.fatbin":   "--image3=kind=elf,sm=80,q4_k\n",
	} {
		if got, err := os.ReadFile(filepath.Join(work, "images", name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(work, "images/old.fatbin")); err == nil {
		t.Error("an image without kernels is still there")
	}
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(work, "images/q4_k.fatbin"), before, before); err != nil {
		t.Fatal(err)
	}
	if err := collect(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(work, "images/q4_k.fatbin")); err != nil || !info.ModTime().Equal(before) {
		t.Errorf("an unchanged image was written again: %v", err)
	}
	if err := os.Remove(filepath.Join(work, "compute_90/index")); err != nil {
		t.Fatal(err)
	}
	if err := collect(); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("a target without an index gives %v", err)
	}
}
