package kv

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// Node is a full page of prompt tokens, after the tokens of its parents up to a root. Each scope has a root of its
// own, so a prompt finds pages of its scope only. The keys and values of a page depend on all tokens before it,
// and so a page is found by its place in the chain, not by its tokens alone.
//
// A node is on the device, in the host tier, or in both.
type Node struct {
	id       uint64
	parent   *Node // nil in a root
	scope    string
	hash     uint64
	sameHash *Node // the next node of the same hash
	tokens   []int32
	children int   // nodes of this parent
	latest   *Node // of them, the one that was found or came last; nil: none
	owner    *owner
	page     int32  // on the device; 0: none
	place    int32  // in the host tier; none if negative
	busy     bool   // it is being copied between the tiers
	step     uint64 // the step that computes the page's last row
	used     uint64 // the clock when it was last released
	links    [lists]link
	file     [32]byte // digest that names its file; zero: it has none
	partial  *partial // nil: none
}

// Page returns the node's page on the device; 0 if the host tier alone has it.
func (n *Node) Page() int32 { return n.page }

// Loading reports whether the node's page is still being copied to the device.
func (n *Node) Loading() bool { return n.busy && n.page != 0 && n.place >= 0 }

// Step returns the number of the step that computes the page's last row. Later steps may read the page.
func (n *Node) Step() uint64 { return n.step }

// Root returns the root of a scope's chains. A root exists while it has a page below it: ask for it again rather
// than keep it.
func (p *Pool) Root(scope string) *Node {
	if n := p.roots[scope]; n != nil {
		return n
	}
	return &Node{id: p.newID(), scope: scope}
}

func (p *Pool) newID() uint64 {
	p.lastID++
	return p.lastID
}

// Find returns the page of tokens after parent, or nil. It compares the tokens themselves: a hash alone could give
// a prompt the keys and values of another.
//
// Most nodes have one child, which is found without a hash: a prompt of 100,000 tokens has 6,250 pages.
func (p *Pool) Find(parent *Node, tokens []int32) *Node {
	if n := parent.latest; n != nil && slices.Equal(n.tokens, tokens) {
		return n
	}
	for n := p.chains[p.hash(parent.id, tokens)]; n != nil; n = n.sameHash {
		if n.parent == parent && slices.Equal(n.tokens, tokens) {
			parent.latest = n
			return n
		}
	}
	return nil
}

// Has reports whether the node is still in the chains.
func (p *Pool) Has(n *Node) bool { return n.page != 0 || n.place >= 0 }

// Publish lets later prompts find a held page. Its pageTokens tokens follow those of parent, whose page is held
// too, and step computes its last row. All of them must be prompt tokens: sampled tokens are computed in another
// order of sums. If the chain has such a page already, Publish returns nil, and the page stays the sequence's own.
func (p *Pool) Publish(parent *Node, tokens []int32, page int32, step uint64, user uint64) *Node {
	p.mustBeHeld(page)
	if len(tokens) != p.pageTokens || p.nodes[page] != nil || p.Find(parent, tokens) != nil {
		return nil
	}
	p.version++
	n := p.insert(parent, tokens, user)
	n.page, n.step = page, step
	p.nodes[page] = n
	n.owner.count(onDevice, 1)
	return n
}

// insert adds a node to the chains. The caller gives it a page or a place.
func (p *Pool) insert(parent *Node, tokens []int32, user uint64) *Node {
	n := &Node{id: p.newID(), parent: parent, scope: parent.scope, hash: p.hash(parent.id, tokens),
		tokens: slices.Clone(tokens), owner: p.owner(Owner{user, parent.scope}), place: -1}
	n.sameHash = p.chains[n.hash]
	p.chains[n.hash] = n
	parent.latest = n
	if parent.children++; parent.parent == nil {
		p.roots[parent.scope] = parent
	}
	n.owner.nodes++
	return n
}

// forget takes a node that no tier has any more out of the chains. Pages after it can no longer be found, and give
// way in their turn.
func (p *Pool) forget(n *Node) {
	p.losePartial(n)
	if first := p.chains[n.hash]; first != n {
		for first.sameHash != n {
			first = first.sameHash
		}
		first.sameHash = n.sameHash
	} else if n.sameHash != nil {
		p.chains[n.hash] = n.sameHash
	} else {
		delete(p.chains, n.hash)
	}
	if n.parent.latest == n {
		n.parent.latest = nil
	}
	if n.parent.children--; n.parent.parent == nil && n.parent.children == 0 {
		delete(p.roots, n.parent.scope)
	}
	n.owner.nodes--
	p.stats.Evicted++
}

// hashTokens hashes a page by its place in the chains. The seed is random, so that nobody can make prompts whose
// hashes are alike.
func (p *Pool) hashTokens(parent uint64, tokens []int32) uint64 {
	b := binary.LittleEndian.AppendUint64(p.scratch[:0], parent)
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	p.scratch = b
	return maphash.Bytes(p.seed, b)
}
