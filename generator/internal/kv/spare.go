package kv

// TakeSpare returns up to n pages for work that nobody waits for, with one reference each. It takes free pages, and
// cached ones of this owner alone: others' pages do not give way to it.
func (p *Pool) TakeSpare(n int, owner Owner) (taken []int32) {
	for len(taken) < n && (len(p.free) > 0 || p.evictOf(owner)) {
		page, _ := p.Take(1)
		taken = append(taken, page...)
	}
	return taken
}

// evictOf frees the owner's least recently used cached page. It returns false if there is none, or none that need not
// be copied to the host tier first.
func (p *Pool) evictOf(owner Owner) bool {
	o := p.owners[owner]
	if o == nil {
		return false
	}
	n := o.ends[stored].oldest
	if n == nil && !p.mayStore() {
		n = firstOf(unstored, anyNode, anyNode)(o)
	}
	if n == nil {
		return false
	}
	p.leaveDevice(n)
	return true
}
