package graphs

// Resize changes how many execs may exist at once, and how many bytes they may
// take. Where fewer are left than exist, the next Maintain evicts those that were
// least recently used, and the roller destroys them: without one they stay.
func (p *Pool) Resize(maxGraphs int, budget int64) {
	p.mu.Lock()
	p.opts.MaxGraphs, p.opts.Budget = maxGraphs, budget
	p.stats.MaxGraphs, p.stats.Budget = maxGraphs, budget
	p.resized = true
	p.mu.Unlock()
	if p.opts.Wake != nil {
		p.opts.Wake()
	}
}

// shrink evicts what the bounds leave no place for, and drops wishes where there
// is to be no graph at all.
func (p *Pool) shrink() {
	p.resized = false
	bytes := int64(0)
	for _, g := range p.live {
		bytes += g.exec.Bytes()
	}
	for len(p.live) > p.opts.MaxGraphs || bytes > p.opts.Budget {
		g := p.oldest()
		bytes -= g.exec.Bytes()
		p.evict(g)
	}
	if p.opts.MaxGraphs == 0 {
		clear(p.wishes)
	}
}

// oldest is the live graph that was least recently used, or nil.
func (p *Pool) oldest() (oldest *graph) {
	for _, g := range p.live {
		if oldest == nil || g.lastStep < oldest.lastStep || g.lastStep == oldest.lastStep && g.uses < oldest.uses {
			oldest = g
		}
	}
	return oldest
}
