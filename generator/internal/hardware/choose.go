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

// cudaBinary is the generator with the cuda device linked in. It lies beside this program and
// cannot start without a working driver, so this program checks first.
const cudaBinary = "reel-generator-cuda"

// system is the environment of choose. Tests have their own.
type system struct {
	libraries []string // globs of the driver's library
	nodes     string   // glob of the GPUs' device nodes
	beside    func() (string, error)
	exec      func(path string, args, env []string) error
	flush     func() // writes the log before exec
	patience  Retry  // with GPUs that are being set up
}

var thisSystem = system{
	libraries: []string{"/usr/lib/*/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so.1",
		"/usr/local/nvidia/lib*/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"},
	nodes:    "/dev/nvidia[0-9]*",
	beside:   os.Executable,
	exec:     syscall.Exec,
	patience: Patience,
}

// Choose replaces o.Device auto by host or cuda. For a GPU it becomes the program with the
// cuda device, with the same process id, after flush has written the log. Device cuda requires
// a GPU, and the error says what is missing. A signal from stop ends Choose with
// [config.ErrSignal].
func Choose(stop <-chan os.Signal, log zerolog.Logger, flush func(), o *config.Options) error {
	s := thisSystem
	s.flush = flush
	return s.choose(stop, log, o)
}

func (s system) choose(stop <-chan os.Signal, log zerolog.Logger, o *config.Options) error {
	if o.Device == "host" {
		return nil
	}
	err := s.becomeCuda(stop, log)
	switch {
	case errors.Is(err, config.ErrSignal):
		return err
	case o.Device == "cuda" && errors.Is(err, device.ErrBusy): // temporary
		return fmt.Errorf("--device cuda: %w", err)
	case o.Device == "cuda":
		return config.Refuse(config.ErrConfig, "--device cuda: %w: mend that, or use --device host", err)
	}
	o.Device = "host"
	log.Info().Str("device", o.Device).Str("reason", err.Error()).Msg("--device auto serves on the host")
	return nil
}

// becomeCuda becomes the cuda program. It returns only an error that says why it cannot.
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

// driver returns the path of the driver's library, or an empty string.
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

// DriverLibrary returns the path of the driver's library, or an empty string.
func DriverLibrary() string { return thisSystem.driver() }

// Open opens the chosen device.
func Open(config.Options) (Hardware, error) { return Host(), nil }
