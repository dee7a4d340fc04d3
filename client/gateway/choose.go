package gateway

import "time"

// bytesPerRequest is the length of a prompt's known beginning for which a generator may have one more
// request than the least busy one.
const bytesPerRequest = 1 << 10

// load is how busy a generator is with the gateway's requests.
type load struct {
	running, slots int
	down           bool // it could not be reached just now
}

// load returns how busy b is. A generator that has never been reached counts as one with one slot.
func (b *backend) load() load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return load{running: int(b.running.Load()), slots: max(b.slots, 1), down: time.Since(b.down) < tryAgain}
}

// less reports whether l is less busy than m, for the size of its batch.
func (l load) less(m load) bool {
	if l.down != m.down {
		return m.down
	}
	return l.running*m.slots < m.running*l.slots
}

// full reports whether a further request would wait for a slot.
func (l load) full() bool { return l.running >= l.slots }

// choose returns the generator for a request, and counts the request there: where the beginning of its
// prompt went, unless that one is too busy, or the least busy. Those in tried are left out; nil if no
// other is left.
func (r *run) choose(tried uint64) *backend {
	if len(r.list) == 1 {
		if tried != 0 {
			return nil
		}
		r.list[0].running.Add(1)
		return r.list[0]
	}
	r.choosing.Lock()
	defer r.choosing.Unlock()
	to, least := r.leastBusy(^tried)
	if to == nil {
		return nil
	}
	with, bytes := r.routed.find(r.user, r.marks)
	there, its := r.leastBusy(with &^ tried)
	if r.byPrefix = there != nil && mayGo(its, least, bytes); r.byPrefix {
		to = there
	}
	to.running.Add(1)
	return to
}

// went remembers and counts where a request is sent.
func (r *run) went(b *backend) {
	if len(r.list) == 1 {
		return
	}
	r.routed.note(r.user, r.marks, b.index)
	if r.byPrefix {
		r.counts.byPrefix.Add(1)
	} else {
		r.counts.byLoad.Add(1)
	}
}

// leastBusy returns the least busy of the generators in a set; nil if it is empty.
func (g *group) leastBusy(set uint64) (best *backend, least load) {
	for _, b := range g.list {
		if set&(1<<b.index) == 0 {
			continue
		}
		if l := b.load(); best == nil || l.less(least) {
			best, least = b, l
		}
	}
	return best, least
}

// mayGo reports whether a request may go to a generator that has bytes of its prompt: that one is there, has
// a slot free if any has, and has few more requests than the least busy.
func mayGo(there, least load, bytes int) bool {
	if there.down && !least.down || there.full() && !least.full() {
		return false
	}
	return there.running <= least.running+1+bytes/bytesPerRequest
}
