//go:build linux && !cuda

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rs/zerolog"
)

// cudaBinary is the generator with the cuda device linked in, beside this one.
// It cannot start where the driver's library is missing, so this one looks first.
const cudaBinary = "reel-generator-cuda"

// system is what chooseDevice looks at; tests have their own.
type system struct {
	libraries []string // where the driver's library may be, as globs
	nodes     string   // device nodes of GPUs, as a glob
	beside    func() (string, error)
	exec      func(path string, args, env []string) error
}

var thisSystem = system{
	libraries: []string{"/usr/lib/*/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so.1", "/usr/local/nvidia/lib*/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"},
	nodes:     "/dev/nvidia[0-9]*",
	beside:    os.Executable,
	exec:      syscall.Exec,
}

// chooseDevice settles o.Device, once. For a GPU it becomes the program that has
// the cuda device, with the same process id. A service that says cuda gets cuda
// or a clear failure, never a processor in silence.
func chooseDevice(log zerolog.Logger, o *Options) error { return thisSystem.chooseDevice(log, o) }

func (s system) chooseDevice(log zerolog.Logger, o *Options) error {
	if o.Device == "host" {
		return nil
	}
	err := s.becomeCuda()
	if o.Device == "cuda" {
		return refuse(errConfig, "--device cuda: %w: mend that, or use --device host", err)
	}
	o.Device = "host"
	log.Info().Str("device", o.Device).Str("reason", err.Error()).Msg("--device auto serves on the host")
	return nil
}

// becomeCuda returns only where that is impossible, and says why.
func (s system) becomeCuda() error {
	if nodes, _ := filepath.Glob(s.nodes); len(nodes) == 0 {
		return fmt.Errorf("%w: there is no %s", errNoGPU, s.nodes)
	}
	driver := s.driver()
	if driver == "" {
		return fmt.Errorf("%w: no NVIDIA driver: libcuda.so.1 was not found", errNoGPU)
	}
	self, err := s.beside()
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(self), cudaBinary)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%s is not beside this program: build it with make cuda", cudaBinary)
	}
	// The loader may not know the folder that the driver was found in.
	env := append(os.Environ(), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_MODULE_LOADING=EAGER",
		"LD_LIBRARY_PATH="+filepath.Dir(driver)+string(filepath.ListSeparator)+os.Getenv("LD_LIBRARY_PATH"))
	return fmt.Errorf("%s: %w", path, s.exec(path, append([]string{path}, os.Args[1:]...), env))
}

// driver is the path of the driver's library, or empty.
func (s system) driver() string {
	patterns := s.libraries
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		patterns = append(patterns, filepath.Join(dir, "libcuda.so.1"))
	}
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// driverLibrary is the path of the driver's library, or empty.
func driverLibrary() string { return thisSystem.driver() }

// openHardware opens the device that was chosen.
func openHardware(Options) (hardware, error) { return hostHardware(), nil }
