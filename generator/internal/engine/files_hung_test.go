package engine

import (
	"errors"
	"testing"

	"reel.internal/reel/kernels/device"
)

// While the disk hangs, one read alone has places of the host tier: sequences that move out find theirs.
func TestAHungDiskLeavesPlaces(t *testing.T) {
	l := newLives(t)
	l.begin(filed(), device.HostOptions{})
	prompt := func(user int) Request {
		q := Request{Tokens: make([]int32, 33), MaxTokens: 2, User: User{UID: uint32(user)}}
		for i := range q.Tokens {
			q.Tokens[i] = int32((i*7 + i/5 + user) % 16)
		}
		return q
	}
	for user := range 3 {
		l.complete(prompt(user))
	}
	l.written(3 * 8)
	l.end()

	hangs := make(chan struct{})
	l.hang = func() { <-hangs }
	o := filed()
	o.Pages, o.HostCache = 20, 32*64*int64(o.PageTokens)
	l.begin(o, device.HostOptions{})
	l.used()
	l.eventually("the host tier is pinned", func() bool { return l.Stats().KV.HostPages == 32 })
	var waiting, others []*sink
	for user := range 3 {
		s, _ := l.submit(prompt(user))
		waiting = append(waiting, s)
	}
	for range 2 {
		s, _ := l.submit(Request{Tokens: make([]int32, 8), MaxTokens: 52, IgnoreEOS: true, Cache: CacheOff})
		others = append(others, s)
	}
	for _, s := range others {
		eventually(t, func() bool {
			select {
			case <-s.ended:
				return true
			default:
				return false
			}
		})
	}
	close(hangs)
	for user, s := range waiting {
		if <-s.ended; s.finish.Usage.CachedTokens != 32 {
			t.Errorf("user %d: %d tokens were read", user, s.finish.Usage.CachedTokens)
		}
	}
	if l.Stats().KV.MovedOut == 0 {
		t.Error("no sequence moved out")
	}
	l.end()
}

// The engine ends although the disk hangs, and frees nothing that is still in use.
func TestTheEngineEndsBesideAHungDisk(t *testing.T) {
	l := newLives(t)
	begun, goesOn := make(chan struct{}, 100), make(chan struct{})
	l.hang = func() {
		begun <- struct{}{}
		<-goesOn
	}
	l.begin(filed(), device.HostOptions{})
	l.complete(Request{Tokens: make([]int32, 33), MaxTokens: 1})
	<-begun
	l.Stop()
	if err := l.wait(); err != nil {
		t.Error(err)
	}
	close(goesOn)
	l.files.running.Wait()
	if err := errors.Join(device.GiveBack(l.releases()...), l.store.Close()); err != nil {
		t.Error(err)
	}
	l.baseline()
}

// Requests that end while others' pages are read are forgotten: a disk that hangs must not keep their prompts.
func TestEndedRequestsWaitForNoDisk(t *testing.T) {
	l := newLives(t)
	request := Request{Tokens: make([]int32, 33), MaxTokens: 1}
	l.begin(filed(), device.HostOptions{})
	l.complete(request)
	l.written(8)
	l.end()

	hangs := make(chan struct{})
	l.hang = func() { <-hangs }
	l.begin(filed(), device.HostOptions{})
	l.used()
	for range 4 { // the first is read for
		s, handle := l.submit(request)
		l.Cancel(handle)
		<-s.ended
	}
	l.Stop()
	if err := l.wait(); err != nil {
		t.Error(err)
	}
	if n := len(l.files.waiting); n != 0 {
		t.Errorf("%d requests that have ended wait to be read for", n)
	}
	close(hangs)
	l.files.running.Wait()
	if err := errors.Join(device.GiveBack(l.releases()...), l.store.Close()); err != nil {
		t.Error(err)
	}
	l.baseline()
}
