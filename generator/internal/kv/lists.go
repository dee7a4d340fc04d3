package kv

import "slices"

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

// Owner names an owner of pages: the prompts of a user in one scope. A user whose requests have names has a scope for
// each name.
type Owner struct {
	User  uint64
	Scope string
}

// owner has published pages. Users have equal shares of each tier while others want it, and so have a user's owners of
// the user's: pages of a user above its share give way first, and of these the pages of an owner above its own.
type owner struct {
	Owner
	of    *account
	nodes int        // that it published and that are in the chains
	pages [tiers]int // of its nodes; on the device those that sequences hold are included
	added uint64     // the clock when it last published a page
	ends  [lists]struct{ oldest, newest *Node }
}

// account is a user's, of all its owners.
type account struct {
	owners []*owner
	pages  [tiers]int // of all of them
}

// maxOwners bounds a user's owners, since each page that gives way looks at all of them. A further one takes the place
// of the one that has published no page for the longest time. Only owners whose pages sequences hold come on top.
const maxOwners = 256

// owner returns an owner, and adds it if there is none.
func (p *Pool) owner(name Owner) *owner {
	p.clock++
	o := p.owners[name]
	if o == nil {
		a := p.accounts[name.User]
		if a == nil {
			a = &account{}
			p.accounts[name.User] = a
		}
		if len(a.owners) >= maxOwners {
			p.dropOldest(a)
		}
		o = &owner{Owner: name, of: a}
		p.owners[name], a.owners = o, append(a.owners, o)
	}
	o.added = p.clock
	return o
}

// count adds to an owner's pages on a tier.
func (o *owner) count(tier, n int) {
	o.pages[tier] += n
	o.of.pages[tier] += n
}

// disown takes one page on a tier from n's owner, and removes an owner without pages.
func (p *Pool) disown(n *Node, tier int) {
	o := n.owner
	if o.count(tier, -1); o.pages != [tiers]int{} {
		return
	}
	delete(p.owners, o.Owner)
	i := slices.Index(o.of.owners, o)
	if o.of.owners = slices.Delete(o.of.owners, i, i+1); len(o.of.owners) == 0 {
		delete(p.accounts, o.User)
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
