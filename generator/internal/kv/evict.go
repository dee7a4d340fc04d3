package kv

// owner is a user that published pages. Users have equal shares of the cached pages while others want them: pages
// of a user above its share give way first.
type owner struct {
	user  uint64
	pages int // with a node, held ones included

	oldest, newest *Node // its cached pages, in the order of their last release
}

// owner returns the owner for a user, and adds it if there is none.
func (p *Pool) owner(user uint64) *owner {
	o := p.owners[user]
	if o == nil {
		o = &owner{user: user}
		p.owners[user] = o
	}
	return o
}

// disown takes a node from its owner, and removes an owner without pages.
func (p *Pool) disown(n *Node) {
	if n.owner.pages--; n.owner.pages == 0 {
		delete(p.owners, n.owner.user)
	}
}

// enterCache puts a node that no sequence holds any more at the new end of its owner's list.
func (p *Pool) enterCache(n *Node) {
	p.clock++
	n.used = p.clock
	o := n.owner
	if n.older = o.newest; n.older != nil {
		n.older.newer = n
	} else {
		o.oldest = n
	}
	o.newest = n
	p.cached++
}

// leaveCache takes a node out of its owner's list.
func (p *Pool) leaveCache(n *Node) {
	o := n.owner
	if n.older != nil {
		n.older.newer = n.newer
	} else {
		o.oldest = n.newer
	}
	if n.newer != nil {
		n.newer.older = n.older
	} else {
		o.newest = n.older
	}
	n.older, n.newer = nil, nil
	p.cached--
}

// evict frees one cached page: the least recently used of the users with more pages than their equal share; of all
// users if nobody's are evictable otherwise.
func (p *Pool) evict() {
	total := 0
	for _, o := range p.owners {
		total += o.pages
	}
	var victim *Node
	victimAbove := false
	for _, o := range p.owners {
		above := o.pages*len(p.owners) > total
		n := o.leaf()
		if n == nil || victimAbove && !above {
			continue
		}
		if victim == nil || above && !victimAbove || n.used < victim.used {
			victim, victimAbove = n, above
		}
	}
	p.leaveCache(victim)
	p.remove(victim)
	p.evicted++
}

// leaf returns the owner's least recently used cached page without a child; nil if there is none. Sequences release
// a chain's tail before its head and hold a page's parents with it, so the oldest page is a leaf, unless another
// owner published the pages after it.
func (o *owner) leaf() *Node {
	for n := o.oldest; n != nil; n = n.newer {
		if n.children == 0 {
			return n
		}
	}
	return nil
}

// Drop frees the cached pages of a scope that no sequence holds, and returns their number.
func (p *Pool) Drop(scope string) (dropped int) {
	for again := true; again; {
		again = false
		for _, o := range p.owners {
			for n := o.oldest; n != nil; {
				next := n.newer
				if n.scope == scope && n.children == 0 {
					p.leaveCache(n)
					p.remove(n)
					dropped, again = dropped+1, true
				}
				n = next
			}
		}
	}
	return dropped
}
