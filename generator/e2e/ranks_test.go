//go:build linux

package e2e

import (
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A rank that hangs ends the requests of all clients with a typed error and the process with 1, and the watchdog hears
// nothing of an engine that waits for it. The next generator serves.
func TestAHungRankEndsAllRequests(t *testing.T) {
	if device != "host" {
		t.Skip("this test wants simulated GPUs")
	}
	s := supervise(t)
	s.open()
	g := s.start("reel-generator-fault", []string{"WATCHDOG_USEC=200000"}, "--gpus", "0,1")
	s.until(g, "READY=1")
	want := ask(g.client(), greedy([]int32{1, 2, 3}, 20))
	const streams = 3
	var group sync.WaitGroup
	told := make(chan string, streams)
	for range streams {
		c := g.client()
		group.Go(func() {
			for { // whatever the machine's speed, a request is running when the rank hangs
				if r := ask(c, greedy([]int32{1, 2, 3}, 200)); r.Err != "" {
					told <- r.Err
					return
				}
			}
		})
	}
	g.eventually("requests run", func() bool { return g.status().Requests.Running == streams })
	hung := time.Now()
	g.signal(syscall.SIGUSR2)
	group.Wait()
	close(told)
	for err := range told {
		if !strings.HasPrefix(err, "the device failed") {
			t.Errorf("a client was told %s", err)
		}
	}
	g.wantExit(1)
	t.Logf("all were told, and the process had ended, after %v", time.Since(hung))
	if log := g.stderr.String(); !strings.Contains(log, "no exchange within") {
		t.Errorf("the log does not say why: %s", log)
	}
	next := s.start("reel-generator", nil, "--gpus", "0,1")
	s.until(next, "READY=1")
	if got := ask(next.client(), greedy([]int32{1, 2, 3}, 20)); !slices.Equal(got.ids(), want.ids()) {
		t.Errorf("the next generator gives %+v, wants %+v", got, want)
	}
	next.signal(syscall.SIGTERM)
	next.wantExit(0)
}
