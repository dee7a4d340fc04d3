package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/protocol"
)

// A user with 50 times another's requests leaves the other at least 80% of an equal share. The other has four
// requests for two slots, so that one always waits while the sender of another wakes up.
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
				s, _ := b.submit(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 4, User: User{UID: user}})
				<-s.ended
				if done[user].Add(1) >= 300 && user == 1 {
					over.Store(true)
				}
			}
		})
	}
	all.Wait()
	mine, theirs := done[2].Load(), done[1].Load()-200 // the 200 in the queue at the end are served too
	if share := 2 * float64(mine) / float64(mine+theirs); share < 0.8 {
		t.Errorf("%d requests against %d: %.2f of a half", mine, theirs, share)
	}
	b.baseline()
}

// A user that has filled its half of the queue is refused; another user is not.
func TestFullQueueIsItsUsers(t *testing.T) {
	o := defaults()
	o.MaxBatch, o.MaxQueue = 1, 4
	b := start(t, o, nil)
	first, h := b.submit(Request{Tokens: []int32{1}, MaxTokens: 511, User: User{UID: 1}})
	<-first.first
	var queued []*sink
	for range 4 {
		s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 1, User: User{UID: 1}})
		queued = append(queued, s)
	}
	// Of the four places left in the queue, the second user may take two and the third one.
	for _, u := range []struct {
		user   uint32
		places int
	}{{1, 0}, {2, 2}, {3, 1}, {2, 0}, {4, 1}} {
		for range u.places {
			s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 1, User: User{UID: u.user}})
			queued = append(queued, s)
		}
		_, err := b.Submit(&Request{Tokens: []int32{1}, MaxTokens: 1, User: User{UID: u.user}, Sink: newSink()})
		if !errors.Is(err, ErrBusy) {
			t.Errorf("user %d after %d more: %v, wants ErrBusy", u.user, u.places, err)
		}
	}
	b.Cancel(h)
	for _, s := range queued {
		<-s.ended
	}
	b.baseline()
}

// Of its uid's half of the queue a name may hold as much as it leaves free; requests without a name fill it only while
// there are no others. Names take no place of another uid.
func TestFullQueueIsItsNames(t *testing.T) {
	o := defaults()
	o.MaxBatch, o.MaxQueue = 1, 8
	b := start(t, o, nil)
	first, h := b.submit(Request{Tokens: []int32{1}, MaxTokens: 511, User: User{UID: 9}})
	<-first.first
	var queued []*sink
	for _, u := range []struct {
		user   User
		places int
	}{{nameOf(1, "a"), 4}, {nameOf(1, "b"), 2}, {nameOf(1, ""), 1}, {nameOf(1, "c"), 1}, {nameOf(1, "d"), 0}, {nameOf(2, ""), 4}} {
		for range u.places {
			s, _ := b.submit(Request{Tokens: []int32{1}, MaxTokens: 1, User: u.user})
			queued = append(queued, s)
		}
		_, err := b.Submit(&Request{Tokens: []int32{1}, MaxTokens: 1, User: u.user, Sink: newSink()})
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%v after %d more: %v, wants ErrBusy", u.user, u.places, err)
		}
	}
	b.Cancel(h)
	for _, s := range queued {
		<-s.ended
	}
	b.mu.Lock()
	if left := len(b.users) + len(b.names); left != 0 {
		t.Errorf("%d users and names are left", left)
	}
	b.mu.Unlock()
	b.baseline()
}

// Beside a user that takes every page and queue place that it can get, another user's requests run at once, each
// time. Without a reserve they wait until one of the first user's requests ends.
func TestAnotherUserFindsPlaceAndPages(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		o := defaults()
		o.MaxBatch, o.MaxQueue, o.Pages = 4, 8, 66
		if guarded {
			o.Reserve, o.ReservePages = 1, 2
		}
		slow := func() time.Duration { return 50 * time.Microsecond }
		b := startOn(t, device.HostOptions{Workers: 2, GraphBytes: 1000, Delay: slow}, o, nil)
		long := Request{Tokens: []int32{1}, MaxTokens: 264, User: User{UID: 1}} // 33 pages
		hog, h := b.submit(long)
		<-hog.first
		hogs := []Handle{h}
		for i := range 8 {
			next, h := b.submit(long)
			if hogs = append(hogs, h); i == 0 && !guarded {
				<-next.first // the other half of the pages is taken
			}
		}
		for range 3 {
			s, _ := b.submit(Request{Tokens: []int32{1, 2, 3}, MaxTokens: 4, User: User{UID: 2}})
			<-s.ended
		}
		select {
		case <-hog.ended:
			if guarded {
				t.Error("another user's requests waited for one of 264 tokens")
			}
		default:
			if !guarded {
				t.Error("another user's requests found pages although all were taken")
			}
		}
		if r := b.Stats().Reserve; guarded && r != (protocol.Reserve{Slots: 1, Pages: 2, Tokens: 16}) {
			t.Errorf("status reports %+v", r)
		}
		for _, h := range hogs {
			b.Cancel(h)
		}
		b.baseline()
	}
}

// The slots of the reserve count as free only for a user that runs nothing.
func TestFreeSlotsOfAUser(t *testing.T) {
	e := &Engine{opts: Options{MaxBatch: 4, Reserve: 2}}
	for _, c := range []struct{ running, mine, want int }{
		{0, 0, 4}, {3, 3, 1}, {4, 4, 0}, {4, 0, 1}, {5, 1, 0}, {5, 0, 1}, {6, 0, 0},
	} {
		e.stats.Requests.Running = c.running
		if got := e.freeSlots(tally{running: c.mine}); got != c.want {
			t.Errorf("%d run, %d of the user's: %d slots are free to it, wants %d", c.running, c.mine, got, c.want)
		}
	}
}
