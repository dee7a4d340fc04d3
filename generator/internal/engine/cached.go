package engine

import "reel.internal/reel/protocol"

// question is a question about the pages that a user's prompts can find.
type question struct {
	user   User
	drop   bool
	answer chan protocol.Cached // takes the answer without waiting
}

// Cached returns the pages that a user's prompts can find: with ScopeUser those of the uid's own prompts with the same
// name, with ScopeAll everybody's. With drop it forgets them first, except pages that requests hold. It waits for the
// engine's thread, between two steps. On error nothing was dropped; the error is ErrDraining, ErrBusy if too many users
// have dropped pages before the files are open, or the one given to Fail.
func (e *Engine) Cached(user User, drop bool) (protocol.Cached, error) {
	q := &question{user, drop, make(chan protocol.Cached, 1)}
	if err := e.ask(q); err != nil {
		return protocol.Cached{}, err
	}
	answer := <-q.answer
	if s := e.files.store.Load(); s != nil { // on this goroutine: the engine's thread does not wait for the disk
		before := e.stored(s, user, false)
		pages := e.stored(s, user, drop)
		answer.Tiers = append(answer.Tiers, e.tier(protocol.TierDisk, pages))
		answer.Dropped = max(answer.Dropped, before-pages) // most pages in memory have a file too
	} else if drop {
		e.dropUnused(user)
	}
	return answer, nil
}

func (e *Engine) ask(q *question) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.cause != nil:
		return e.cause
	case e.stopping:
		return ErrDraining // finishAll answers only the questions before
	}
	if q.drop {
		if !e.files.mayDrop(q.user) {
			return ErrBusy
		}
		e.rereads.forget(q.user, e.opts.CacheScope == ScopeAll)
	}
	e.inbox = append(e.inbox, command{kind: cached, question: q})
	e.wakeup.signal()
	return nil
}

// answerLater answers a question, on the engine's thread. A drop waits for a page that is being written, which has no
// file yet and is held.
func (e *Engine) answerLater(q *question) {
	if q.drop && e.files.writing != nil {
		e.files.drops = append(e.files.drops, q)
		return
	}
	e.answer(q)
}

// answer answers a question at once.
func (e *Engine) answer(q *question) {
	device, host, dropped := 0, 0, 0
	switch e.opts.CacheScope {
	case ScopeUser:
		if q.drop {
			dropped = e.sched.DropOf(q.user.UID, userScope(q.user))
		}
		device, host = e.sched.CachedOf(q.user.UID, userScope(q.user))
	case ScopeAll:
		if q.drop {
			dropped = e.sched.DropAll()
		}
		device, host = e.sched.CachedOfAll()
	}
	answer := protocol.Cached{Scope: e.opts.CacheScope.String(), PageTokens: e.opts.PageTokens, Dropped: dropped,
		Tiers: []protocol.CacheTier{e.tier(protocol.TierDevice, device)}}
	if e.opts.HostCache > 0 {
		answer.Tiers = append(answer.Tiers, e.tier(protocol.TierHost, host))
	}
	q.answer <- answer
}

func (e *Engine) tier(name string, pages int) protocol.CacheTier {
	return protocol.CacheTier{Tier: name, Pages: pages, Tokens: pages * e.opts.PageTokens,
		Bytes: int64(pages) * e.memory.PageBytes()}
}
