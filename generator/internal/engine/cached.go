package engine

import "reel.internal/reel/protocol"

// question is a question about the pages that a user's prompts can find.
type question struct {
	user   uint32
	drop   bool
	answer chan protocol.Cached // takes the answer without waiting
}

// Cached returns the pages that a user's prompts can find: with ScopeUser those of the user's own prompts, with
// ScopeAll everybody's. With drop it forgets them first, except pages that requests hold. It waits for the engine's
// thread, between two steps. On error nothing was dropped; the error is ErrDraining or the one given to Fail.
func (e *Engine) Cached(user uint32, drop bool) (protocol.Cached, error) {
	q := &question{user, drop, make(chan protocol.Cached, 1)}
	if err := e.ask(q); err != nil {
		return protocol.Cached{}, err
	}
	return <-q.answer, nil
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
	e.inbox = append(e.inbox, command{kind: cached, question: q})
	e.wakeup.signal()
	return nil
}

// answer answers a question, on the engine's thread.
func (e *Engine) answer(q *question) {
	pages, dropped := 0, 0
	switch e.opts.CacheScope {
	case ScopeUser:
		if q.drop {
			dropped = e.sched.DropOf(q.user)
		}
		pages = e.sched.CachedOf(q.user)
	case ScopeAll:
		if q.drop {
			dropped = e.sched.DropAll()
		}
		pages = e.sched.CachedOfAll()
	}
	kv := e.stats.KV
	q.answer <- protocol.Cached{Scope: e.opts.CacheScope.String(), PageTokens: kv.PageTokens, Dropped: dropped,
		Tiers: []protocol.CacheTier{{Tier: protocol.TierDevice, Pages: pages, Tokens: pages * kv.PageTokens,
			Bytes: int64(pages) * (kv.Bytes / int64(max(1, kv.Pages)))}}}
}
