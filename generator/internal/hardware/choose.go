//go:build !cuda

package hardware

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rs/zerolog"

	"reel/generator/internal/config"
	"reel/kernels/device"
)

// cudaBinary is the generator with the cuda device linked in, beside this one.
// It cannot start where the driver is missing or refuses, so this one looks first.
const cudaBinary = "reel-generator-cuda"

// system is what chooseDevice looks at; tests have their own.
type system struct {
	libraries []string // where the driver's library may be, as globs
	nodes     string   // device nodes of GPUs, as a glob
	beside    func() (string, error)
	exec      func(path string, args, env []string) error
	flush     func() // comes before exec
	patience  Retry  // for GPUs that are being set up
}

var thisSystem = system{
	libraries: []string{"/usr/lib/*/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so.1", "/usr/local/nvidia/lib*/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"},
	nodes:     "/dev/nvidia[0-9]*",
	beside:    os.Executable,
	exec:      syscall.Exec,
	patience:  Patience,
}

// Choose settles o.Device, once. For a GPU it becomes the program that has
// the cuda device, with the same process id. A service that says cuda gets cuda
// or a clear failure, never a processor in silence. stop ends it with errSignal.
// flush writes the log before another program takes the process over.
func Choose(stop <-chan os.Signal, log zerolog.Logger, flush func(), o *config.Options) error {
	s := thisSystem
	s.flush = flush
	return s.chooseDevice(stop, log, o)
}

func (s system) chooseDevice(stop <-chan os.Signal, log zerolog.Logger, o *config.Options) error {
	if o.Device == "host" {
		return nil
	}
	err := s.becomeCuda(stop, log)
	switch {
	case errors.Is(err, config.ErrSignal):
		return err
	case o.Device == "cuda" && errors.Is(err, device.ErrBusy): // to be tried again
		return fmt.Errorf("--device cuda: %w", err)
	case o.Device == "cuda":
		return config.Refuse(config.ErrConfig, "--device cuda: %w: mend that, or use --device host", err)
	}
	o.Device = "host"
	log.Info().Str("device", o.Device).Str("reason", err.Error()).Msg("--device auto serves on the host")
	return nil
}

// becomeCuda returns only where that is impossible, and says why.
func (s system) becomeCuda(stop <-chan os.Signal, log zerolog.Logger) error {
	p, err := s.find()
	if err != nil {
		return err
	}
	if err := s.tryPatiently(p, stop, log); err != nil {
		return err
	}
	s.flush()
	return fmt.Errorf("%s: %w", p.path, s.exec(p.path, append([]string{p.path}, os.Args[1:]...), p.env))
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

// DriverLibrary is the path of the driver's library, or empty.
func DriverLibrary() string { return thisSystem.driver() }

// Open opens the device that was chosen.
func Open(config.Options) (Hardware, error) { return Host(), nil }
