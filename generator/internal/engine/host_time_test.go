package engine

import (
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
)

// The host's time is that between waits for steps: what the device sleeps does not count.
func TestHostTimeLeavesOutTheDevices(t *testing.T) {
	const pause, tokens = 2 * time.Millisecond, 40
	b := built(t, device.HostOptions{Delay: func() time.Duration { return pause }}, nano(), nil)
	b.run()
	begun := time.Now()
	b.complete(Request{Tokens: []int32{1, 2}, MaxTokens: tokens, IgnoreEOS: true})
	took, host := time.Since(begun), time.Duration(b.Stats().Steps.HostUS)*time.Microsecond
	if host == 0 || took-host < tokens*pause/2 {
		t.Errorf("%v of %v were the host's, though the device slept %v", host, took, tokens*pause)
	}
	if err := b.finish(); err != nil {
		t.Fatal(err)
	}
}
