package kv

import (
	"cmp"
	"slices"
)

// Owned returns the numbers of pages that an owner published and that later prompts can find, on the device and in the
// host tier. A page may be on both. Pages that sequences hold are included.
func (p *Pool) Owned(owner Owner) (device, host int) {
	if o := p.owners[owner]; o != nil {
		return o.pages[onDevice], o.pages[inHost]
	}
	return 0, 0
}

// Owners returns those that published pages.
func (p *Pool) Owners() (owners []Owner) {
	for owner := range p.owners {
		owners = append(owners, owner)
	}
	return owners
}

// DropOwned frees the cached pages that an owner published, in all tiers, and returns their number. It looks at no page
// of another. Pages that a sequence holds, that are being copied, or that another owner's pages come after, stay.
func (p *Pool) DropOwned(owner Owner) (dropped int) {
	p.dropPartials(owner)
	dropped = p.dropAll(p.owners[owner])
	p.stats.Evicted -= uint64(dropped) // these gave way to nobody
	return dropped
}

// dropOldest frees the cached pages of a user's owner that has published no page for the longest time.
func (p *Pool) dropOldest(a *account) {
	oldest := slices.MinFunc(a.owners, func(x, y *owner) int { return cmp.Compare(x.added, y.added) })
	oldest.added = p.clock // if sequences hold some of its pages, another one is next
	p.dropAll(oldest)
}

// dropAll frees the cached pages of an owner, in all tiers, and returns their number.
func (p *Pool) dropAll(o *owner) (dropped int) {
	p.version++
	for before := -1; o != nil && before < dropped; {
		before = dropped
		for list := range lists {
			for n := o.ends[list].oldest; n != nil; {
				next := n.links[list].newer
				if n.children == 0 && !n.busy && (n.page == 0 || p.refs[n.page] == 0) {
					p.drop(n)
					dropped++
				}
				n = next
			}
		}
	}
	return dropped
}

// drop frees a cached node's page and place.
func (p *Pool) drop(n *Node) {
	page := n.page
	if n.place >= 0 {
		p.leaveHost(n)
	}
	if page != 0 {
		p.leaveDevice(n)
	}
}
