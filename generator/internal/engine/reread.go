package engine

import (
	"cmp"
	"slices"
	"time"

	"reel.internal/reel/generator/internal/scheduler"
)

// Bounds of the texts that wait to be reread, of all users.
const (
	maxRereads      = 32
	maxRereadTokens = 1 << 20 // 4 MiB
)

// expectTime is how long rereading pauses after Expect if no request is submitted. Decoding and tokenizing most
// prompts takes less.
const expectTime = 50 * time.Millisecond

// rereads are the texts that wait to be reread. The engine's mu guards all but each text's sequence, which only the
// engine's thread uses.
type rereads struct {
	waiting []*reread // in order of arrival; the one that is being reread stays until it is done
	current *reread
	last    User      // whose text was current before
	pause   time.Time // a request is expected until then
}

// reread is a text to reread.
type reread struct{ scheduled scheduler.Sequence }

// tokens returns the text.
func (r *reread) tokens() []int32 { return r.scheduled.Prompt[:len(r.scheduled.Prompt)-1] }

// Reread computes keys and values of the beginning of a user's next prompt while no request runs or waits, as pages
// that the prompt then finds. A text of Context tokens or more is ignored, and so is every text if
// no prompt finds pages, or if the engine has one slot only. If too many wait, those of the uid, and of its name, that
// has most are dropped, oldest first. A text that another one or a request of the user begins with is dropped too.
func (e *Engine) Reread(user User, tokens []int32) {
	scope := e.scope(&Request{User: user})
	if scope == "" || len(tokens) >= e.opts.Context || e.opts.slots() < 2 || e.opts.Chunk < e.opts.PageTokens {
		return
	}
	// The scheduler computes the pages before a prompt's last token, here the first one of the user's next words.
	r := &reread{scheduled: scheduler.Sequence{Prompt: append(slices.Clip(tokens), 0), User: user, Scope: scope}}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rereads.supersede(user, tokens)
	e.rereads.add(r)
	e.wakeup.signal()
}

// add queues r and drops texts that are too many.
func (q *rereads) add(r *reread) {
	q.waiting = append(q.waiting, r)
	for len(q.waiting) > maxRereads {
		q.dropOf(func(*reread) int { return 1 })
	}
	for q.tokens() > maxRereadTokens {
		q.dropOf(func(r *reread) int { return len(r.tokens()) })
	}
}

// tokens returns the number of tokens of all texts.
func (q *rereads) tokens() (n int) {
	for _, r := range q.waiting {
		n += len(r.tokens())
	}
	return n
}

// dropOf drops the oldest text of the uid whose texts have the largest sum of size, and there of the name.
func (q *rereads) dropOf(size func(*reread) int) {
	uids, names := map[uint32]int{}, map[User]int{}
	for _, r := range q.waiting {
		uids[r.scheduled.User.UID] += size(r)
		names[r.scheduled.User] += size(r)
	}
	most := slices.MaxFunc(q.waiting, func(a, b *reread) int {
		x, y := a.scheduled.User, b.scheduled.User
		return cmp.Or(cmp.Compare(uids[x.UID], uids[y.UID]), cmp.Compare(names[x], names[y]))
	})
	q.drop(slices.Index(q.waiting, most))
}

// drop removes the i-th text.
func (q *rereads) drop(i int) {
	if q.current == q.waiting[i] {
		q.current, q.last = nil, q.current.scheduled.User
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

// supersede drops the user's texts that a longer one of the same user begins with.
func (q *rereads) supersede(user User, tokens []int32) {
	for i := len(q.waiting) - 1; i >= 0; i-- {
		r := q.waiting[i]
		if text := r.tokens(); r.scheduled.User == user && len(text) <= len(tokens) &&
			slices.Equal(text, tokens[:len(text)]) {
			q.drop(i)
		}
	}
}

// forget drops the texts of a user, or of all users.
func (q *rereads) forget(user User, all bool) {
	for i := len(q.waiting) - 1; i >= 0; i-- {
		if all || q.waiting[i].scheduled.User == user {
			q.drop(i)
		}
	}
}

// next returns the text to reread now; there is one. After a uid's text, another uid's is next, or another name's.
func (q *rereads) next() *reread {
	if q.current == nil {
		i := slices.IndexFunc(q.waiting, func(r *reread) bool { return r.scheduled.User.UID != q.last.UID })
		if i < 0 {
			i = slices.IndexFunc(q.waiting, func(r *reread) bool { return r.scheduled.User != q.last })
		}
		q.current = q.waiting[max(0, i)]
	}
	return q.current
}

// done removes r, unless it was dropped meanwhile.
func (q *rereads) done(r *reread) {
	if i := slices.Index(q.waiting, r); i >= 0 {
		q.drop(i)
	}
}

// submitted notes that a request came: it is no longer expected, and computes the texts that it begins with.
func (q *rereads) submitted(r *Request) {
	q.pause = time.Time{}
	q.supersede(r.User, r.Tokens)
}

// pending reports whether texts wait, and the time until one of them may be reread.
func (q *rereads) pending() (pause time.Duration, any bool) {
	if len(q.waiting) == 0 {
		return 0, false
	}
	return time.Until(q.pause), true
}

// enqueueReread enqueues a step that rereads, if no other step is in flight and no request waits or is expected.
func (e *Engine) enqueueReread() error {
	if len(e.inFlight) > 0 || !e.sched.MayReread() {
		return nil
	}
	for r := e.nextReread(); r != nil; r = e.nextReread() {
		if b := e.sched.Reread(&r.scheduled); b != nil {
			return e.enqueue(b)
		}
		e.finishReread(r)
	}
	return nil
}

// nextReread returns the text to reread now, or nil.
func (e *Engine) nextReread() *reread {
	e.mu.Lock()
	defer e.mu.Unlock()
	if pause, any := e.rereads.pending(); !any || pause > 0 || len(e.inbox) > 0 || e.stopping {
		return nil
	}
	return e.rereads.next()
}

// finishReread notes that r's pages are computed, or cannot be.
func (e *Engine) finishReread(r *reread) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rereads.done(r)
	e.stats.Steps.Rereads++
}
