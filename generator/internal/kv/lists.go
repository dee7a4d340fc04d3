package kv

// Each owner's cached nodes are in lists, from the least recently released to the last.
const (
	unstored = iota // cached on the device alone
	stored          // cached on the device, and in the host tier
	onHost          // in the host tier, on the device or not
	lists
)

// The tiers by which an owner's pages are counted.
const (
	onDevice = iota
	inHost
	tiers
)

// link is a node's place in one list.
type link struct {
	in           bool
	older, newer *Node
}

// owner is a user that published pages. Users have equal shares of each tier while others want it: pages of a user
// above its share give way first.
type owner struct {
	user  uint64
	nodes int        // that it published and that are in the chains
	pages [tiers]int // of its nodes; on the device those that sequences hold are included
	ends  [lists]struct{ oldest, newest *Node }
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

// disown takes one page on a tier from n's owner, and removes an owner without pages.
func (p *Pool) disown(n *Node, tier int) {
	n.owner.pages[tier]--
	if n.owner.pages == [tiers]int{} {
		delete(p.owners, n.owner.user)
	}
}

// push puts n at the newest end of a list.
func (p *Pool) push(list int, n *Node) {
	ends := &n.owner.ends[list]
	n.links[list] = link{in: true, older: ends.newest}
	if ends.newest != nil {
		ends.newest.links[list].newer = n
	} else {
		ends.oldest = n
	}
	ends.newest = n
	p.lengths[list]++
}

// unlink takes n out of a list, if it is there.
func (p *Pool) unlink(list int, n *Node) {
	at, ends := n.links[list], &n.owner.ends[list]
	if !at.in {
		return
	}
	if at.older != nil {
		at.older.links[list].newer = at.newer
	} else {
		ends.oldest = at.newer
	}
	if at.newer != nil {
		at.newer.links[list].older = at.older
	} else {
		ends.newest = at.older
	}
	n.links[list] = link{}
	p.lengths[list]--
}

// cache notes that no sequence holds n's page any more.
func (p *Pool) cache(n *Node) {
	p.clock++
	n.used = p.clock
	if n.place < 0 {
		p.push(unstored, n)
		if n.busy {
			p.storing++
		}
		return
	}
	p.push(stored, n)
	p.unlink(onHost, n)
	p.push(onHost, n)
}

// uncache notes that a sequence holds n's page again.
func (p *Pool) uncache(n *Node) {
	if n.busy {
		p.storing--
	}
	p.unlink(unstored, n)
	p.unlink(stored, n)
}
