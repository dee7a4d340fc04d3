package kv

import "slices"

// Pages outlive a restart in files, which another package keeps. A page is read from its file into a place of the host
// tier, and is a node of that tier from then on. A node knows the digest that names its file, which the digests of the
// pages after it depend on.

// Parent returns the node before n; nil of a root.
func (n *Node) Parent() *Node { return n.parent }

// Tokens returns the tokens of the page. They must not be changed.
func (n *Node) Tokens() []int32 { return n.tokens }

// Scope returns the scope of the node's chain.
func (n *Node) Scope() string { return n.scope }

// User returns the user that published the page.
func (n *Node) User() uint64 { return n.owner.User }

// File returns the digest that names the node's file; zero if it has none, as a root.
func (n *Node) File() [32]byte { return n.file }

// SetFile notes that the node has a file.
func (n *Node) SetFile(file [32]byte) { n.file = file }

// MayWrite reports whether a file of the node could be found: all nodes before it have files.
func (n *Node) MayWrite() bool { return n.parent.parent == nil || n.parent.file != [32]byte{} }

// BeginRead returns at most n places of the host tier to read pages into. Cached nodes give way; those of found, which
// come before the pages to be read, are used for that last. FinishRead or EndRead follows for each place.
func (p *Pool) BeginRead(n int, found []*Node) (places []int32) {
	p.version++
	for _, before := range slices.Backward(found) { // so that its tail gives way before its head
		if p.clock++; before.links[onHost].in && before.page == 0 {
			before.used = p.clock
			p.unlink(onHost, before)
			p.push(onHost, before)
		}
	}
	for len(places) < n && p.mayStore() {
		places = append(places, p.takeStorePlace())
	}
	return places
}

// EndRead gives back a place without a page.
func (p *Pool) EndRead(place int32) {
	p.version++
	p.host.free = append(p.host.free, place)
}

// FinishRead adds the page in a place to the chains after parent, which is a root or in the chains, and returns its
// node. If the chains have such a page already, it gives back the place and returns that one.
func (p *Pool) FinishRead(parent *Node, tokens []int32, place int32, user uint64, file [32]byte) *Node {
	if n := p.Find(parent, tokens); n != nil {
		p.EndRead(place)
		n.file = file
		return n
	}
	p.version++
	n := p.insert(parent, tokens, user)
	p.clock++
	n.place, n.file, n.used = place, file, p.clock
	n.owner.count(inHost, 1)
	p.push(onHost, n)
	return n
}
