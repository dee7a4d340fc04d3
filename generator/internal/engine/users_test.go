package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
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
