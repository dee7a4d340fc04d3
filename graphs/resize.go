package graphs

// Resize changes the bounds on graphs and on their bytes. If more exist, the next
// Maintain evicts the least recently used ones, and the roller destroys them;
// without a roller they stay.
func (p *Pool) Resize(maxGraphs int, budget int64) {
	p.mu.Lock()
	p.opts.MaxGraphs, p.opts.Budget = maxGraphs, budget
	p.stats.MaxGraphs, p.stats.Budget = maxGraphs, budget
	p.resized = true
	p.mu.Unlock()
	p.wake()
}

// shrink evicts graphs until the rest fits the bounds. If no graph is allowed, it
// drops all capture requests.
func (p *Pool) shrink() {
	p.resized = false
	bytes := int64(0)
	for _, g := range p.live {
		bytes += g.exec.Bytes()
	}
	for len(p.live) > p.opts.MaxGraphs || bytes > p.opts.Budget {
		g := p.leastRecentlyUsed()
		bytes -= g.exec.Bytes()
		p.evict(g)
	}
	if p.opts.MaxGraphs == 0 {
		clear(p.policy.requests)
	}
}
