//go:build !cuda

package hardware

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
)

// machine is a system with a GPU, a driver and the cuda program, all made of files.
type machine struct {
	system
	dir  string
	ran  []string
	with []string
	// flushed reports whether the log was written before ran.
	flushed bool
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	t.Setenv("LD_LIBRARY_PATH", "")
	m := &machine{dir: t.TempDir()}
	m.system = system{libraries: []string{m.dir + "/lib*/libcuda.so.1"}, nodes: m.dir + "/nvidia[0-9]*",
		flush:  func() { m.flushed = m.ran == nil },
		beside: func() (string, error) { return filepath.Join(m.dir, "reel-generator"), nil },
		exec: func(path string, args, env []string) error {
			m.ran, m.with = append([]string{path}, args...), env
			return errors.New("not in a test")
		}}
	for _, name := range []string{"lib64/libcuda.so.1", "nvidia0"} {
		path := filepath.Join(m.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	m.programDoes(t, `test "$1" = version`)
	return m
}

// programDoes makes the cuda program a shell script.
func (m *machine) programDoes(t *testing.T, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, cudaBinary), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestCudaBecomesTheOtherProgram(t *testing.T) {
	for _, name := range []string{"cuda", "auto"} {
		m, o := newMachine(t), config.Options{Device: name}
		_ = m.choose(nil, zerolog.Nop(), &o)
		if len(m.ran) < 2 || m.ran[0] != filepath.Join(m.dir, cudaBinary) || !slices.Equal(m.ran[2:], os.Args[1:]) {
			t.Errorf("--device %s ran %v", name, m.ran)
		}
		if !m.flushed {
			t.Errorf("--device %s: the log was not flushed first", name)
		}
		if !slices.Contains(m.with, "CUDA_DEVICE_ORDER=PCI_BUS_ID") {
			t.Errorf("--device %s: the environment was not set", name)
		}
		if !slices.Contains(m.with, "LD_LIBRARY_PATH="+m.dir+"/lib64:") {
			t.Errorf("--device %s: the loader does not know the driver's folder", name)
		}
	}
}

func TestHostNeverLooksForAGPU(t *testing.T) {
	m, o := newMachine(t), config.Options{Device: "host"}
	if err := m.choose(nil, zerolog.Nop(), &o); err != nil || m.ran != nil {
		t.Errorf("error %v, ran %v", err, m.ran)
	}
}

// The error names the missing part. cuda then fails, and auto serves on the host.
func TestMissingPartIsNamed(t *testing.T) {
	wants := map[string]string{"nvidia0": "no GPU", "lib64/libcuda.so.1": "driver", cudaBinary: "make cuda"}
	for missing, want := range wants {
		m, o := newMachine(t), config.Options{Device: "cuda"}
		if err := os.Remove(filepath.Join(m.dir, missing)); err != nil {
			t.Fatal(err)
		}
		err := m.choose(nil, zerolog.Nop(), &o)
		if !errors.Is(err, config.ErrConfig) || !strings.Contains(err.Error(), want) || m.ran != nil {
			t.Errorf("without %s: %v, ran %v", missing, err, m.ran)
		}
		o.Device = "auto"
		if err := m.choose(nil, zerolog.Nop(), &o); err != nil || o.Device != "host" {
			t.Errorf("auto without %s: %v, device %s", missing, err, o.Device)
		}
	}
}
