package graphs

import (
	"slices"
	"time"
)

// Maintain does the pool's work between two steps, on the engine's thread. It
// installs the graph that the roller captured, answers the roller's eviction
// request, and retires evicted graphs that no running step uses: steps up to
// completed are done. It makes no device call and never waits. running says whether
// sequences run, which slows the roller down.
func (p *Pool) Maintain(completed uint64, running bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rebound {
		p.evictForeign()
	}
	if p.finished != nil {
		p.install(p.finished)
		p.finished = nil
	}
	if p.resized {
		p.shrink()
	}
	if p.evictionRequest != nil {
		p.answerEvictionRequest()
	}
	p.reclaim(completed)
	p.pacer.maintained(p.step, running, time.Now())
	if p.step >= p.decayed+decaySteps {
		p.decayed = p.step
		p.decay()
	}
	p.changed.Broadcast()
}

// evictForeign evicts the graphs of an identity that is no longer the pool's.
func (p *Pool) evictForeign() {
	for _, g := range p.live {
		if g.identity != p.opts.Identity {
			p.evict(g)
		}
	}
	p.rebound = false
}

// install makes a captured graph live. It counts as used by the current step, so
// that it is not the next to be evicted. A graph of an old identity, or of a shape
// that already has a graph, is only reclaimed.
func (p *Pool) install(g *graph) {
	if g.identity != p.opts.Identity || p.live[g.key] != nil {
		p.evicted = append(p.evicted, g)
		return
	}
	p.live[g.key] = g
	g.lastStep = p.step
	family := p.families[g.key.family()]
	at, _ := slices.BinarySearchFunc(family, g.key.Tokens(), byTokens)
	p.families[g.key.family()] = slices.Insert(family, at, g)
}

// evict makes a graph unreachable for new plans. Steps that replay it may still run.
func (p *Pool) evict(g *graph) {
	delete(p.live, g.key)
	f := g.key.family()
	p.families[f] = slices.DeleteFunc(p.families[f], func(o *graph) bool { return o == g })
	p.evicted = append(p.evicted, g)
	p.stats.Evicted++
}

// reclaim retires evicted graphs after their last step has completed. The roller
// destroys them.
func (p *Pool) reclaim(completed uint64) {
	p.evicted = slices.DeleteFunc(p.evicted, func(g *graph) bool {
		if g.lastStep <= completed {
			p.retired = append(p.retired, g)
			return true
		}
		return false
	})
}

// answerEvictionRequest evicts the least recently used graph for the request of the
// roller, or drops the request if that graph is the more useful one.
func (p *Pool) answerEvictionRequest() {
	r := p.evictionRequest
	p.evictionRequest = nil
	g := p.leastRecentlyUsed()
	if g == nil || !r.mayEvict(g.use, p.step) {
		p.policy.remove(r.key)
		return
	}
	p.evict(g)
}

// leastRecentlyUsed returns the live graph to evict first, or nil if there is none.
func (p *Pool) leastRecentlyUsed() (least *graph) {
	for _, g := range p.live {
		if least == nil || g.before(least.use) {
			least = g
		}
	}
	return least
}

// decay halves the counts of replays and of misses.
func (p *Pool) decay() {
	for _, g := range p.live {
		g.replays /= 2
	}
	p.policy.decay(p.evictionRequest)
}
