package kv

// Owned returns the number of pages that a user published and that later prompts can find, those that sequences
// hold included.
func (p *Pool) Owned(user uint64) int {
	if o := p.owners[user]; o != nil {
		return o.pages
	}
	return 0
}

// Owners returns the users that published pages.
func (p *Pool) Owners() (users []uint64) {
	for user := range p.owners {
		users = append(users, user)
	}
	return users
}

// DropOwned frees the cached pages that a user published, and returns their number. It looks at no page of another
// user. Pages that a sequence holds, or that another user's pages come after, stay.
func (p *Pool) DropOwned(user uint64) (dropped int) {
	for before := -1; before < dropped; {
		before = dropped
		o := p.owners[user]
		if o == nil {
			break
		}
		for n := o.oldest; n != nil; {
			next := n.newer
			if n.children == 0 {
				p.leaveCache(n)
				p.remove(n)
				dropped++
			}
			n = next
		}
	}
	return dropped
}
