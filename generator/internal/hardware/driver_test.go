package hardware

import (
	"bytes"
	"errors"
	"fmt"
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

// started is what a start does after the driver gave these errors in turn, the last one again and again.
func started(name string, limit time.Duration, errs ...error) (o config.Options, calls int, log string, err error) {
	var b bytes.Buffer
	o.Device = name
	err = decide(&o, zerolog.New(&b), startDriver(func() error {
		calls++
		return errs[min(calls, len(errs))-1]
	}, Retry{Limit: limit, Pause: time.Millisecond}, nil, zerolog.New(&b)))
	return o, calls, b.String(), err
}

// A driver that refuses the program is an absent GPU for device cuda, for good; auto serves on the host and says why.
func TestDriverThatRefuses(t *testing.T) {
	refusal := errors.New("the driver refuses cuInit: CUDA_ERROR_NO_DEVICE")
	_, calls, _, err := started("cuda", time.Minute, refusal)
	if e := failure.Explain(err); calls != 1 || failure.ExitCode(err) != failure.ExitConfig ||
		e.Code != protocol.CodeGPUAbsent || !strings.Contains(e.Message, "NO_DEVICE") {
		t.Errorf("exit code %d, %+v after %d calls", failure.ExitCode(err), e, calls)
	}
	if o, _, log, err := started("auto", time.Minute, refusal); err != nil || o.Device != "host" ||
		!strings.Contains(log, "NO_DEVICE") {
		t.Errorf("auto: %v, device %s: %s", err, o.Device, log)
	}
	for _, name := range []string{"cuda", "auto"} {
		if o, _, _, err := started(name, time.Minute, nil); err != nil || o.Device != "cuda" {
			t.Errorf("%s: %v, device %s", name, err, o.Device)
		}
	}
}

// A start waits for GPUs that the machine is still setting up, within a limit. Its exit code
// then lets a service manager try again.
func TestStartWaitsForGPUSetup(t *testing.T) {
	busy := fmt.Errorf("%w: SYSTEM_NOT_READY", device.ErrBusy)
	o, calls, log, err := started("cuda", time.Minute, busy, busy, nil)
	if err != nil || calls != 3 || o.Device != "cuda" || strings.Count(log, "NOT_READY") != 1 {
		t.Errorf("%v after %d calls: %s", err, calls, log)
	}
	if _, _, _, err = started("cuda", 10*time.Millisecond, busy); !errors.Is(err, device.ErrBusy) ||
		failure.ExitCode(err) != failure.ExitFailure || failure.Explain(err).Code != protocol.CodeGPUBusy {
		t.Errorf("exit code %d, %v", failure.ExitCode(err), err)
	}
}

// A signal ends a start that waits for the driver.
func TestSignalWhileTheDriverIsBusy(t *testing.T) {
	stop := make(chan os.Signal, 1)
	err := startDriver(func() error {
		stop <- syscall.SIGTERM
		return device.ErrBusy
	}, Retry{Limit: time.Minute, Pause: time.Millisecond}, stop, zerolog.Nop())
	if !errors.Is(err, config.ErrSignal) {
		t.Errorf("got %v", err)
	}
}
