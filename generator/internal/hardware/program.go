//go:build !cuda

package hardware

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"reel.internal/reel/generator/internal/config"
)

// cudaBinary is the generator with the cuda device linked in. It lies beside this program and
// cannot start without the driver's library, so this program checks first.
const cudaBinary = "reel-generator-cuda"

// cudaProgram is the path and the environment of the generator with the cuda device.
type cudaProgram struct {
	path string
	env  []string
}

// try runs a command of the program that ends at once. Errors: [config.ErrNoGPU]; [config.ErrSignal] if a signal ended
// the program, or stop did.
func (p cudaProgram) try(stop <-chan os.Signal, command string) error {
	var said bytes.Buffer
	cmd := exec.Command(p.path, command)
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
	return fmt.Errorf("%w: %s does not start (%w): %s", config.ErrNoGPU, cudaBinary, err, why)
}
