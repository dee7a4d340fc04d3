package kv

// oldest returns the node of a list that gives way first: the least recently used of the users with more pages on
// the tier than their equal share, else of all users; and of a user likewise by owners. first returns an owner's
// candidate, or nil.
func (p *Pool) oldest(tier int, first func(*owner) *Node) *Node {
	total := 0
	for _, a := range p.accounts {
		total += a.pages[tier]
	}
	var c candidate
	for _, a := range p.accounts {
		c.offer(a.oldest(tier, first), a.pages[tier]*len(p.accounts) > total)
	}
	return c.node
}

// oldest is [Pool.oldest] for one user.
func (a *account) oldest(tier int, first func(*owner) *Node) *Node {
	var c candidate
	for _, o := range a.owners {
		c.offer(first(o), o.pages[tier]*len(a.owners) > a.pages[tier])
	}
	return c.node
}

// candidate is the node that gives way, of those that were offered so far.
type candidate struct {
	node  *Node
	above bool // it is of a party above its share
}

// offer takes n in place of the candidate if n gives way before it. n may be nil.
func (c *candidate) offer(n *Node, above bool) {
	if n == nil || c.above && !above {
		return
	}
	if c.node == nil || above && !c.above || n.used < c.node.used {
		c.node, c.above = n, above
	}
}

// firstOf returns a function that returns an owner's oldest node in a list that may give way and is not being copied.
// A node that would be forgotten gives way before others only if no page comes after it in the chain, if there is
// such a node. Sequences release a prompt's tail before its head, so that is nearly always the first of the list.
func firstOf(list int, may, forgotten func(*Node) bool) func(*owner) *Node {
	return func(o *owner) (otherwise *Node) {
		for n := o.ends[list].oldest; n != nil; n = n.links[list].newer {
			if n.busy || !may(n) {
				continue
			}
			if !forgotten(n) || n.children == 0 {
				return n
			}
			if otherwise == nil {
				otherwise = n
			}
		}
		return otherwise
	}
}

func anyNode(*Node) bool { return true }

// evict frees one cached page on the device. Pages that the host tier has give way first.
func (p *Pool) evict() {
	first := func(o *owner) *Node { return o.ends[stored].oldest }
	if p.lengths[stored] == 0 {
		first = firstOf(unstored, anyNode, anyNode)
	}
	p.leaveDevice(p.oldest(onDevice, first))
}

// leaveDevice frees the page of a cached node.
func (p *Pool) leaveDevice(n *Node) {
	p.unlink(unstored, n)
	p.unlink(stored, n)
	p.nodes[n.page] = nil
	p.free = append(p.free, n.page)
	n.page = 0
	if n.place < 0 {
		p.forget(n)
	}
	p.disown(n, onDevice)
}
