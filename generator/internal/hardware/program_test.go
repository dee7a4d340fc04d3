//go:build !cuda

package hardware

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// says prints the error with which gorgonia.org/cu ends a program after cuInit failed.
func says(name string) string {
	return `echo 'Error in initialization, please refer to "https://docs.nvidia.com/cuda/" for details on: ` +
		name + `'; exit 1`
}

// A cuda program that cannot start is never exec'd: cuda fails with gpu_absent and the
// driver's error, and auto serves on the host.
func TestProgramThatDoesNotStart(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"refused": {says("NoDevice"), "the driver refuses cuInit: NoDevice"},
		"no library": {`echo "$0: error while loading shared libraries: libcuda.so.1: wrong ELF class" >&2; exit 127`,
			"wrong ELF class"},
		"crashed": {"kill -SEGV $$", "segmentation fault"},
	} {
		m := newMachine(t)
		m.programDoes(t, c.script)
		o := config.Options{Device: "cuda"}
		err := m.choose(nil, zerolog.Nop(), &o)
		if e := failure.Explain(err); m.ran != nil || failure.ExitCode(err) != failure.ExitConfig ||
			e.Code != protocol.CodeGPUAbsent || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: ran %v, exit code %d, %+v", name, m.ran, failure.ExitCode(err), e)
		}
		var log bytes.Buffer
		o.Device = "auto"
		if err := m.choose(nil, zerolog.New(&log), &o); err != nil || m.ran != nil || o.Device != "host" ||
			!strings.Contains(log.String(), c.want) {
			t.Errorf("%s: %v, ran %v, device %s: %s", name, err, m.ran, o.Device, log.String())
		}
	}
}

// A start waits for GPUs that the machine is still setting up, within a limit. Its exit code
// then lets a service manager try again.
func TestStartWaitsForGPUSetup(t *testing.T) {
	m := newMachine(t)
	m.patience = Retry{Limit: time.Minute, Pause: time.Millisecond}
	m.programDoes(t, "cd '"+m.dir+"'; test -e three && exit; test ! -e two || touch three; "+
		"test ! -e one || touch two; touch one; "+says("SystemNotReady"))
	var log bytes.Buffer
	_ = m.choose(nil, zerolog.New(&log), &config.Options{Device: "cuda"})
	if m.ran == nil || strings.Count(log.String(), "SystemNotReady") != 1 {
		t.Errorf("it is not waited for: %s", log.String())
	}
	m = newMachine(t)
	m.patience = Retry{Limit: 10 * time.Millisecond, Pause: time.Millisecond}
	m.programDoes(t, says("SystemNotReady"))
	err := m.choose(nil, zerolog.Nop(), &config.Options{Device: "cuda"})
	if m.ran != nil || !errors.Is(err, device.ErrBusy) || failure.ExitCode(err) != failure.ExitFailure ||
		failure.Explain(err).Code != protocol.CodeGPUBusy {
		t.Errorf("ran %v, exit code %d, %v", m.ran, failure.ExitCode(err), err)
	}
}

// A signal while the program is tried ends the start, whether this process gets it or the
// other.
func TestSignalWhileTheProgramIsTried(t *testing.T) {
	stop := make(chan os.Signal, 1)
	stop <- syscall.SIGTERM
	m := newMachine(t)
	m.programDoes(t, "exec sleep 60")
	if err := m.choose(stop, zerolog.Nop(), &config.Options{Device: "auto"}); !errors.Is(err, config.ErrSignal) {
		t.Errorf("got %v", err)
	}
	m.programDoes(t, "kill -TERM $$")
	if err := m.choose(nil, zerolog.Nop(), &config.Options{Device: "auto"}); !errors.Is(err, config.ErrSignal) {
		t.Errorf("got %v", err)
	}
}
