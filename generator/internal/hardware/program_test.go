//go:build !cuda

package hardware

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/protocol"
)

// A cuda program that cannot start is never exec'd: cuda fails with gpu_absent and the
// driver's error, and auto serves on the host.
func TestProgramThatDoesNotStart(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
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
