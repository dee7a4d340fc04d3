//go:build linux && cuda

package gpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lattice are flags for a start that captures for some time.
var lattice = []string{"--precapture", "1-512", "--log-level", "warn"}

// few are flags that leave nearly all shapes to the roller.
var few = []string{"--precapture", "1", "--log-level", "warn"}

// After SIGTERM while the start captures, while graphs are replayed, and while the roller captures, the generator exits
// with 0 and running requests finish, a hundred times.
func TestGPUTermAtAnyMoment(t *testing.T) {
	const times, atOnce = 100, 5
	running := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	var early, slowest atomic.Int64
	for n := range times {
		running <- struct{}{}
		if t.Failed() {
			break
		}
		group.Go(func() {
			defer func() { <-running }()
			if n%2 == 0 {
				early.Add(termWhileCapturing(t, &slowest))
			} else {
				termWhileServing(t, &slowest)
			}
		})
	}
	group.Wait()
	t.Logf("%d of %d generators were stopped while they captured at start; the slowest of those took %v to end",
		early.Load(), times/2, time.Duration(slowest.Load()))
	if early.Load() < times/10 {
		t.Errorf("only %d generators were stopped while they captured", early.Load())
	}
}

// termWhileCapturing stops a generator during its start. It returns 0 if the start was over before the signal, else 1.
func termWhileCapturing(t *testing.T, slowest *atomic.Int64) int64 {
	g := start(t, "reel-generator", lattice...)
	g.capturing()
	time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
	loading := g.status().State == "loading"
	begun := time.Now()
	g.stop()
	if took := int64(time.Since(begun)); took > slowest.Load() {
		slowest.Store(took)
	}
	if !loading {
		return 0
	}
	return 1
}

// termWhileServing stops a generator while it serves and its roller captures.
func termWhileServing(t *testing.T, slowest *atomic.Int64) {
	g := start(t, "reel-generator", few...)
	c := g.dial()
	if c == nil {
		return
	}
	var group sync.WaitGroup
	begun, failed := make(chan struct{}, 1000), make(chan error, 10)
	run := func(prompt, n int) {
		if ids, err := stream(c, prompt, n, func(time.Time) { begun <- struct{}{} }); err != nil {
			failed <- fmt.Errorf("prompt of %d, after %d tokens: %w", prompt, len(ids), err)
			begun <- struct{}{}
		}
	}
	for _, prompt := range []int{3, 7 + rand.IntN(400)} {
		group.Go(func() { run(prompt, 300) })
	}
	<-begun
	for n := 0; n < 3 && len(failed) == 0; n++ { // two misses of a shape request its capture
		run(20+rand.IntN(5), 1)
	}
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	if len(failed) == 0 {
		g.stop()
		group.Wait()
	}
	if len(failed) > 0 {
		t.Error(<-failed)
		g.stacks()
	}
}

// A generator without a terminal goes on after a hundred SIGHUPs, during the captures of the start and while it serves
// and its roller captures. Its completions are those of an undisturbed one.
func TestGPUHangUpsAreOutlived(t *testing.T) {
	const length = 300
	g := start(t, "reel-generator", lattice...)
	want, err := stream(g.dial(), 9, length, func(time.Time) {})
	if err != nil {
		t.Fatal(err)
	}
	g.stop()

	g = start(t, "reel-generator", append([]string{"--log-level", "info"}, few...)...)
	g.capturing()
	for range 50 {
		g.signal(syscall.SIGHUP)
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
	}
	c, sent := g.dial(), 50
	got, err := stream(c, 9, length, func(time.Time) {
		if sent++; sent <= 100 {
			g.signal(syscall.SIGHUP)
		}
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %d tokens, wants those of an undisturbed generator", err, len(got))
	}
	g.stop()
	if strings.Contains(g.stderr.String(), "panic") {
		t.Error(g.stderr.String())
	}
}
