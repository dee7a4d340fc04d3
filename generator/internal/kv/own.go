package kv

// Owned returns the numbers of pages that a user published and that later prompts can find, on the device and in the
// host tier. A page may be on both. Pages that sequences hold are included.
func (p *Pool) Owned(user uint64) (device, host int) {
	if o := p.owners[user]; o != nil {
		return o.pages[onDevice], o.pages[inHost]
	}
	return 0, 0
}

// Owners returns the users that published pages.
func (p *Pool) Owners() (users []uint64) {
	for user := range p.owners {
		users = append(users, user)
	}
	return users
}

// DropOwned frees the cached pages that a user published, in all tiers, and returns their number. It looks at no page
// of another user. Pages that a sequence holds, that are being copied, or that another user's pages come after, stay.
func (p *Pool) DropOwned(user uint64) (dropped int) {
	o := p.owners[user]
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
	p.stats.Evicted -= uint64(dropped) // these gave way to nobody
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
