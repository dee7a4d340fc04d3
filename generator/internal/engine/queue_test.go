package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reel/kernels/device"
	"reel/protocol"
)

// One user with 50 times another's requests leaves the other at least 80% of an equal share: that
// one has four at a time for two places, so that one of them waits while another's sender wakes up.
func TestUsersHaveEqualShares(t *testing.T) {
	o := defaults()
	o.MaxBatch, o.MaxQueue = 2, 400
	b := start(t, o, nil)
	var done [3]atomic.Int64
	var over atomic.Bool
	var all sync.WaitGroup
	for i := range 204 {
		user := uint32(1)
		if i < 4 {
			user = 2
		}
		all.Go(func() {
			for !over.Load() {
				s, _ := b.submit(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 4, User: user})
				<-s.ended
				if done[user].Add(1) >= 300 && user == 1 {
					over.Store(true)
				}
			}
		})
	}
	all.Wait()
	mine, theirs := done[2].Load(), done[1].Load()-200 // what was in the queue at the end is served too
	if share := 2 * float64(mine) / float64(mine+theirs); share < 0.8 {
		t.Errorf("%d requests against %d: %.2f of a half", mine, theirs, share)
	}
	b.baseline()
}

// A user whose queue is full is refused; another is not.
func TestFullQueueIsItsUsers(t *testing.T) {
	o := defaults()
	o.MaxBatch, o.MaxQueue = 1, 4
	b := start(t, o, nil)
	first, h := b.submit(Request{Tokens: []int32{1}, MaxTokens: 511, User: 1})
	<-first.first
	var queued []*sink
	for range 4 {
		s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 1, User: 1})
		queued = append(queued, s)
	}
	// Of the four places that are left the second may take two, a third one.
	for _, u := range []struct {
		user   uint32
		places int
	}{{1, 0}, {2, 2}, {3, 1}, {2, 0}, {4, 1}} {
		for range u.places {
			s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 1, User: u.user})
			queued = append(queued, s)
		}
		if _, err := b.Submit(&Request{Tokens: []int32{1}, MaxTokens: 1, User: u.user, Sink: newSink()}); !errors.Is(err, ErrBusy) {
			t.Errorf("user %d after %d more: %v, wants ErrBusy", u.user, u.places, err)
		}
	}
	b.Cancel(h)
	for _, s := range queued {
		<-s.ended
	}
	b.baseline()
}

// Beside a user that takes every page it can get and all of its queue, another's
// request runs at once, however often it comes. Without a reserve it waits for one
// of the first user's to end.
func TestAnotherUserFindsPlaceAndPages(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		o := defaults()
		o.MaxBatch, o.MaxQueue, o.Pages = 4, 8, 66
		if guarded {
			o.Reserve, o.ReservePages = 1, 2
		}
		slow := func() time.Duration { return 50 * time.Microsecond }
		b := startOn(t, device.HostOptions{Workers: 2, GraphBytes: 1000, Delay: slow}, o, nil)
		long := Request{Tokens: []int32{1}, MaxTokens: 264, User: 1} // takes 33 pages
		hog, h := b.submit(long)
		<-hog.first
		hogs := []Handle{h}
		for range 8 {
			_, h := b.submit(long)
			hogs = append(hogs, h)
		}
		for range 3 {
			s, _ := b.submit(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 4, User: 2})
			<-s.ended
		}
		select {
		case <-hog.ended:
			if guarded {
				t.Error("another user's requests came after one of 264 tokens")
			}
		default:
			if !guarded {
				t.Error("another user's requests found pages where all were taken")
			}
		}
		if r := b.Stats().Reserve; guarded && r != (protocol.Reserve{Slots: 1, Pages: 2, Tokens: 16}) {
			t.Errorf("status tells of %+v", r)
		}
		for _, h := range hogs {
			b.Cancel(h)
		}
		b.baseline()
	}
}

// What a user may queue depends on the places that it could take: those of the
// reserve are for users that run nothing.
func TestReserveIsNoPartOfAQueue(t *testing.T) {
	e := &Engine{opts: Options{MaxBatch: 4, Reserve: 2}}
	for _, c := range []struct{ running, mine, want int }{
		{0, 0, 4}, {3, 3, 1}, {4, 4, 0}, {4, 0, 1}, {5, 1, 0}, {5, 0, 1}, {6, 0, 0},
	} {
		e.stats.Requests.Running = c.running
		if got := e.freeSlots(tally{running: c.mine}); got != c.want {
			t.Errorf("%d run, %d of the user's: %d places are free to it, wants %d", c.running, c.mine, got, c.want)
		}
	}
}
