package engine

import (
	"time"

	"reel.internal/reel/generator/internal/scheduler"
)

// tally counts the requests of one uid.
type tally struct{ queued, running int }

// mayQueue reports whether a user may queue one more request. One uid may hold at most half of the queue, and no more
// of it than is left free, so another uid always finds room. Of its uid's half a name may hold no more than is left
// free there, for other names; requests without a name may fill it while there are no others. A request that can have a
// free slot at once does not count as queued. The caller holds e.mu.
//
// This is not a second copy of the scheduler's shares (scheduler/share.go): they order requests that were
// accepted, on the engine's goroutine; mayQueue refuses requests, on the goroutine that calls Submit, and so bounds
// memory. If Submit asked the shares, the scheduler would need e.mu during every step.
func (e *Engine) mayQueue(user User) bool {
	uid, mine := e.users[user.UID], e.names[user]
	half := e.opts.MaxQueue + e.freeSlots(uid)
	most := min(half, 2*half-e.waiting)
	if user.Name == "" && mine == uid.queued {
		return mine < most
	}
	return mine < most-uid.queued
}

// maxQueued is the most requests that mayQueue lets wait at once, of all users.
func (o Options) maxQueued() int { return 2 * (o.MaxQueue + o.slots()) }

// freeSlots returns how many slots a uid with these requests could take now. Slots of the reserve are for users
// that run nothing.
func (e *Engine) freeSlots(mine tally) int {
	running := e.stats.Requests.Running
	if mine.running == 0 && running >= e.opts.MaxBatch {
		return min(1, e.opts.slots()-running)
	}
	return max(0, e.opts.MaxBatch-running)
}

// tally adds to the counts of a user's requests; queued and running may be negative. The caller holds e.mu.
func (e *Engine) tally(user User, queued, running int) {
	t := e.users[user.UID]
	t.queued, t.running = t.queued+queued, t.running+running
	e.waiting += queued
	if e.users[user.UID] = t; t == (tally{}) {
		delete(e.users, user.UID)
	}
	if e.names[user] += queued; e.names[user] == 0 {
		delete(e.names, user)
	}
}

// noteJoined moves sequences that got their slot from their users' queued requests to the running ones.
func (e *Engine) noteJoined(joined []*scheduler.Sequence) {
	if len(joined) == 0 {
		return
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range joined {
		q.Owner.(*sequence).admitted = now
		e.giveDrafts(q)
		e.tally(q.User, -1, 1)
	}
	e.stats.Requests.Running = e.sched.Running()
}

// noteEnded takes a request of this user, which ran or waited, out of the counts.
func (e *Engine) noteEnded(user User, ran bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ran {
		e.tally(user, 0, -1)
	} else {
		e.tally(user, -1, 0)
	}
	e.snapshot()
}
