//go:build cuda

package assembly

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"reel.internal/reel/generator/internal/config"
	"reel.internal/reel/generator/internal/failure"
	"reel.internal/reel/generator/internal/hardware"
	"reel.internal/reel/generator/internal/plan"
	"reel.internal/reel/kernels/cuda"
	gpu "reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/protocol"
)

// A missing GPU and a model that is too large for any GPU have different errors.
func TestGPUStartIsToldApart(t *testing.T) {
	for code, o := range map[string]config.Options{
		protocol.CodeGPUAbsent: {GPU: 99}, protocol.CodeOutOfMemory: {Model: giant(t)},
	} {
		l, _, err := onGPU(t, o, hardware.Open)
		wantsCode(t, err, code)
		if !errors.Is(err, config.ErrConfig) {
			t.Errorf("%s is not for good", code)
		}
		if l.Hardware.Device != nil {
			closeGPU(t, l, nil)
		}
	}
}

// wantsCode checks the code and the hint of an error that ends a start.
func wantsCode(t *testing.T, err error, code string) {
	t.Helper()
	if err == nil || failure.Explain(err).Code != code || failure.Explain(err).Hint == "" {
		t.Errorf("%v, wants %s", err, code)
		return
	}
	t.Logf("%s: %v", code, err)
}

// If another program holds the GPU's memory at boot, so that no context or no plan fits, a
// start retries, gives up after its limit, and serves once the memory is free.
func TestGPUBusyAtBoot(t *testing.T) {
	defer func(w hardware.Retry) { hardware.Patience = w }(hardware.Patience)
	for _, leave := range []int64{64 << 20, contextBytes(t) + 16<<20} {
		end := holds(t, leave)
		hardware.Patience.Limit = 2 * time.Second
		begun := time.Now()
		l, _, err := onGPU(t, config.Options{}, hardware.Open)
		wantsCode(t, err, protocol.CodeGPUBusy)
		if took := time.Since(begun); took < hardware.Patience.Limit || errors.Is(err, config.ErrConfig) {
			t.Errorf("it gave up after %v: %v", took, err)
		}
		if l.Hardware.Device != nil {
			closeGPU(t, l, nil)
		}
		hardware.Patience.Limit = time.Minute
		waited := 0
		l, err = prepareOn(hardware.Open, config.Options{Device: "cuda", MaxGraphs: 64}, func(_ float64, what string) {
			if strings.HasPrefix(what, "waiting for the GPU") {
				if waited++; waited == 2 {
					end()
				}
			}
		})
		if err != nil || waited < 2 {
			t.Fatalf("%v after %d waits", err, waited)
		}
		t.Logf("%s left by another program: it waited %d times, then loaded", plan.Size(leave), waited)
		closeGPU(t, l, nil)
	}
}

// contextBytes returns the memory of a context with the kernels that every model needs.
func contextBytes(t *testing.T) int64 {
	t.Helper()
	var free [2]int64
	first, err := gpu.New(0, cuda.Kernels)
	if err == nil {
		free[0], _, err = first.MemInfo()
	}
	if err != nil {
		t.Fatal(err)
	}
	second, err := gpu.New(0, cuda.Kernels)
	if err == nil {
		free[1], _, err = second.MemInfo()
	}
	if err := errors.Join(err, second.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	return free[0] - free[1]
}

// holds starts a program that takes all of the GPU's memory but `leave` bytes, until end is
// called or the test ends.
func holds(t *testing.T, leave int64) (end func()) {
	t.Helper()
	other := exec.Command(os.Args[0], "-test.run=^TestGPUHeldByAnother$", "-test.v")
	other.Env = append(os.Environ(), "REEL_TEST_LEAVE="+strconv.FormatInt(leave, 10))
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end = func() { _ = errors.Join(stdin.Close(), other.Wait()) } // fails the second time
	t.Cleanup(end)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "holds ") {
			return end
		}
		t.Log(lines.Text())
	}
	t.Fatal("the other program takes nothing")
	return nil
}

// TestGPUHeldByAnother is the other program of holds.
func TestGPUHeldByAnother(t *testing.T) {
	leave, err := strconv.ParseInt(os.Getenv("REEL_TEST_LEAVE"), 10, 64)
	if err != nil {
		return // this is an ordinary run of the tests
	}
	d, err := gpu.New(0, cuda.Kernels)
	if err != nil {
		t.Fatal(err)
	}
	ballast(t, d, leave)
	free, _, err := d.MemInfo()
	_, _ = os.Stdout.WriteString("\nholds all but " + plan.Size(free) + "\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err != nil {
		t.Error(err)
	}
}
