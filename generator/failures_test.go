//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/assembly"
	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/daemon"
	"reel.internal/reel/generator/internal/engine"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// record reads the record that the program left beside its socket.
func (f *fixture) record() (r protocol.Record) {
	f.t.Helper()
	text, err := os.ReadFile(protocol.RecordPath(f.socket))
	if errors.Is(err, os.ErrNotExist) {
		return r
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// Each failure of a start has its code, for clients and in the record.
func TestFailuresAreToldApart(t *testing.T) {
	for code, err := range map[string]error{
		protocol.CodeGPUAbsent: config.Refuse(config.ErrConfig, "--device cuda: %w: there is no /dev/nvidia0",
			config.ErrNoGPU),
		protocol.CodeGPUBusy:      fmt.Errorf("after 1m: %w", errors.Join(device.ErrBusy, config.ErrNoRoom)),
		protocol.CodeOutOfMemory:  config.Refuse(config.ErrConfig, "%w: one sequence needs 9 GiB", config.ErrNoRoom),
		protocol.CodeDeviceFailed: fmt.Errorf("%w: an illegal address", device.ErrSticky),
		protocol.CodeModelChanged: config.Refuse(config.ErrConfig, "the model cannot be served: %w",
			weights.ErrChanged),
		protocol.CodeConfiguration: config.Refuse(config.ErrConfig, "--model: no such directory"),
		protocol.CodeInternal:      errors.New("something else"),
	} {
		f := newFixture(t)
		f.program.load = func(context.Context, config.Options, func(float64, string)) (*assembly.Loaded, error) {
			return nil, err
		}
		f.start()
		f.wait()
		r := f.record()
		if r.State != protocol.StateFailed || r.PID != os.Getpid() || r.Failure == nil || r.Failure.Code != code ||
			r.Failure.Message != err.Error() || r.Failure.Hint == "" {
			t.Errorf("%s: the record is %+v, %+v", code, r, r.Failure)
		}
	}
	e := failure.Explain(fmt.Errorf("engine: step memory: %w", device.ErrOutOfMemory))
	if e.Code != protocol.CodeOutOfMemory {
		t.Errorf("got %+v", e)
	}
	e = failure.Explain(errors.Join(engine.ErrDevice, errors.New("a launch failed")))
	if e.Code != protocol.CodeDeviceFailed {
		t.Errorf("got %+v", e)
	}
}

// A generator that serves removes an older record, one that drains writes one, and a clean
// stop leaves none. A start that finds another's socket writes none.
func TestRecordOfALife(t *testing.T) {
	f := newFixture(t)
	daemon.Journal{Path: protocol.RecordPath(f.socket), Owned: true}.Failed(errors.New("an older one"))
	frames := f.hangs()
	for end := time.Now().Add(patience); f.record().State != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("while it serves: %+v", f.record())
		}
	}
	second := newFixture(t)
	second.socket = f.socket
	second.start()
	if code := second.wait(); code != failure.ExitConfig || f.record().State != "" {
		t.Errorf("of another's socket: exit code %d, %+v", code, f.record())
	}
	f.signals <- syscall.SIGTERM
	for end := time.Now().Add(patience); f.record().State != protocol.StateDraining; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("while it drains: %+v", f.record())
		}
	}
	f.engine.finish(engine.Finish{Reason: protocol.FinishLength})
	f.read(frames)
	if code := f.wait(); code != 0 || f.record().State != "" {
		t.Errorf("exit code %d, %+v", code, f.record())
	}
}
