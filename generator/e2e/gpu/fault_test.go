//go:build linux && cuda

package gpu

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

// After a kernel has written out of bounds, every client is told device_failed within a second, the process exits with
// 1, and the next one serves. The program is the generator built with the tag fault; the product has no such kernel.
func TestGPUOutOfBoundsKernel(t *testing.T) { endsAll(t, syscall.SIGUSR1, "ILLEGAL_ADDRESS") }

// The same if two GPUs share the model and one of them fails, or hangs while the other waits for it.
func TestOneOfTwoGPUsFails(t *testing.T) {
	if out, err := exec.Command("nvidia-smi", "-L").Output(); err != nil || strings.Count(string(out), "UUID") < 2 {
		t.Skip("this test wants two NVIDIA GPUs")
	}
	t.Run("fails", func(t *testing.T) { endsAll(t, syscall.SIGUSR1, "ILLEGAL_ADDRESS", "--gpus", "0,1") })
	t.Run("hangs", func(t *testing.T) { endsAll(t, syscall.SIGUSR2, "no exchange within", "--gpus", "0,1") })
}

// endsAll has the device of a generator fail by a signal, and wants the log to have this text.
func endsAll(t *testing.T, fault syscall.Signal, logged string, flags ...string) {
	const streams = 5
	socket := filepath.Join(t.TempDir(), "g.sock")
	g := startOn(t, socket, "reel-generator-fault", append(flags, "--log-level", "warn")...)
	want, err := stream(g.dial(), 9, 40, func(time.Time) {})
	if err != nil {
		t.Fatal(err)
	}
	idle := g.dial()
	var group sync.WaitGroup
	told := make(chan time.Time, streams+1)
	running := make(chan struct{}, 10_000)
	for n := range streams {
		c := g.dial()
		group.Go(func() {
			_, err := stream(c, 5+n, 900, func(time.Time) { running <- struct{}{} })
			told <- wantsDeviceFailed(t, err)
		})
	}
	for range 10 * streams {
		<-running
	}
	failed := time.Now()
	g.signal(fault)
	group.Wait()
	told <- wantsDeviceFailed(t, untilRefused(idle))
	close(told)
	var last time.Duration
	for at := range told {
		last = max(last, at.Sub(failed))
	}
	code := g.end()
	t.Logf("all %d clients were told after %v, and the process ended with %d after %v",
		streams+1, last, code, time.Since(failed))
	if last > time.Second {
		t.Errorf("the last client was told after %v", last)
	}
	if f := g.failure(); f.Code != protocol.CodeDeviceFailed || f.Hint == "" {
		t.Errorf("the record says %+v", f)
	}
	if log := g.stderr.String(); code != 1 || !strings.Contains(log, logged) {
		t.Errorf("exit code %d\n%s", code, log)
	}
	next := startOn(t, socket, "reel-generator", append(flags, "--log-level", "warn")...)
	if got, err := stream(next.dial(), 9, 40, func(time.Time) {}); err != nil || !slices.Equal(got, want) {
		t.Errorf("the next generator: %v, %v, wants %v", err, got, want)
	}
	next.stop()
}

// untilRefused asks for the status until that fails, and returns the error. A failed generator answers status until
// its engine is closed, after it has ended all requests.
func untilRefused(c *client.Client) error {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for {
		if _, err := c.Status(ctx); err != nil {
			return err
		}
	}
}

// wantsDeviceFailed checks a client's error, and returns the time.
func wantsDeviceFailed(t *testing.T, err error) time.Time {
	var said *client.Error
	if !errors.As(err, &said) || said.Code != protocol.CodeDeviceFailed || said.Hint == "" {
		t.Errorf("a client was told %v, wants %s", err, protocol.CodeDeviceFailed)
	}
	return time.Now()
}
