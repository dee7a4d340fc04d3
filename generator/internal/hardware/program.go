//go:build !cuda

package hardware

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"reel/generator/internal/config"
	"reel/kernels/device"
)

// cudaProgram is the path and the environment of the generator with the cuda device.
type cudaProgram struct {
	path string
	env  []string
}

// find looks for the program, the driver and a GPU.
func (s system) find() (p cudaProgram, err error) {
	if nodes, _ := filepath.Glob(s.nodes); len(nodes) == 0 {
		return p, fmt.Errorf("%w: there is no %s", config.ErrNoGPU, s.nodes)
	}
	driver := s.driver()
	if driver == "" {
		return p, fmt.Errorf("%w: no NVIDIA driver: libcuda.so.1 was not found", config.ErrNoGPU)
	}
	if p.path, err = s.findBeside(); err != nil {
		return p, err
	}
	// The loader may not search the folder of the driver that was found.
	p.env = append(os.Environ(), "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_MODULE_LOADING=EAGER",
		"LD_LIBRARY_PATH="+filepath.Dir(driver)+string(filepath.ListSeparator)+os.Getenv("LD_LIBRARY_PATH"))
	return p, nil
}

func (s system) findBeside() (string, error) {
	self, err := s.beside()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), cudaBinary)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not beside this program: build it with make cuda", cudaBinary)
	}
	return path, nil
}

// try runs the program with the argument version. The program calls cuInit before any code of
// ours runs, so a refusal by the driver ends it before it can tell a client. Errors:
// [config.ErrNoGPU]; [device.ErrBusy] while the machine sets up its GPUs; [config.ErrSignal]
// if a signal ended the program, or stop did.
func (p cudaProgram) try(stop <-chan os.Signal) error {
	var said bytes.Buffer
	cmd := exec.Command(p.path, "version")
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, &said, &said
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return refused(err, said.String())
	case <-stop:
		_ = cmd.Process.Kill() // fails if it has ended
		return config.ErrSignal
	}
}

// refused translates the end of a program into an error, with the last line that it printed.
func refused(err error, said string) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	// A signal to the process group is meant for this process too.
	s := exit.Sys().(syscall.WaitStatus)
	if s.Signaled() && (s.Signal() == syscall.SIGTERM || s.Signal() == syscall.SIGINT) {
		return config.ErrSignal
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	why := lines[len(lines)-1]
	if _, name, found := strings.Cut(why, " for details on: "); found { // message of gorgonia.org/cu
		why = "the driver refuses cuInit: " + name
	}
	if strings.HasSuffix(why, " SystemNotReady") {
		return fmt.Errorf("%w: %s", device.ErrBusy, why)
	}
	return fmt.Errorf("%w: %s does not start (%w): %s", config.ErrNoGPU, cudaBinary, err, why)
}

// tryPatiently tries until the machine has set up its GPUs, or the patience has ended.
func (s system) tryPatiently(p cudaProgram, stop <-chan os.Signal, log zerolog.Logger) error {
	told := false
	return s.patience.WhileBusy(func(_ float64, what string) {
		if !told {
			log.Warn().Msg(what)
		}
		told = true
	}, func() error { return p.try(stop) })
}

// FindCUDA returns an error if the cuda program is not beside this one. TryCUDA returns an
// error if it does not start.
func FindCUDA() error {
	_, err := thisSystem.findBeside()
	return err
}

func TryCUDA() error {
	p, err := thisSystem.find()
	if err == nil {
		err = p.try(nil)
	}
	return err
}
