// Package kv keeps the account of KV pages: which are free, how many sequences hold each, and which hold a prompt
// that a later request may begin with. It does bookkeeping only and makes no call on a device.
//
// pool.go counts references. chain.go finds a prompt's pages. lists.go orders cached pages by their last use, and
// evict.go chooses those that give way. partial.go finds partial pages. host.go is the tier in host memory, and
// files.go reads pages into it. own.go counts and drops a user's pages, and spare.go takes pages for work that nobody
// waits for.
package kv

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
)

// Pool is the pool of KV pages on the device, with a tier in host memory behind it. A page is free, held by
// sequences, or cached: held by none, with the keys and values of a prompt. Cached pages give way to sequences, so
// they count as free. Page 0 is never given out; padding rows write there. A Pool is not safe for concurrent use.
type Pool struct {
	pageTokens int
	refs       []int32 // by page: the sequences that hold it
	nodes      []*Node // by page: its node in the chains; nil for a page that no prompt can find
	free       []int32
	partials   map[int32]*Node // by their partial page

	seed     maphash.Seed
	scratch  []byte // of hashTokens
	hash     func(parent uint64, tokens []int32) uint64
	chains   map[uint64]*Node // nodes by hash; those of one hash are linked by sameHash
	roots    map[string]*Node // by scope
	lastID   uint64           // of a node
	clock    uint64           // of the last release
	owners   map[Owner]*owner
	accounts map[uint64]*account // by user
	lengths  [lists]int          // nodes in each list, of all owners
	storing  int                 // cached pages that are being copied to the host tier
	version  uint64              // raised by each change

	host  host
	stats Stats
}

// Stats counts what the cache did since the start, and the pages that it has.
type Stats struct {
	Cached       int    // pages on the device that only a later prompt can use
	HostPages    int    // places of the host tier
	HostCached   int    // of those, taken by cached pages
	HostSequence int    // of those, taken by sequences that moved out
	Evicted      uint64 // cached pages that were forgotten: no tier has them any more
	Stored       uint64 // pages copied to the host tier
	Loaded       uint64 // pages copied back
}

// New returns a pool of n free pages, numbered 1 to n, of pageTokens tokens each, without a host tier.
func New(n, pageTokens int) *Pool {
	p := &Pool{pageTokens: pageTokens, refs: make([]int32, n+1), nodes: make([]*Node, n+1), free: make([]int32, n),
		seed: maphash.MakeSeed(), version: 1, chains: map[uint64]*Node{}, partials: map[int32]*Node{},
		roots: map[string]*Node{}, owners: map[Owner]*owner{}, accounts: map[uint64]*account{}}
	p.hash = p.hashTokens
	for i := range p.free {
		p.free[i] = int32(n - i)
	}
	return p
}

// Shuffle puts the free pages into a random order, for tests.
func (p *Pool) Shuffle(r *rand.Rand) {
	r.Shuffle(len(p.free), func(i, j int) { p.free[i], p.free[j] = p.free[j], p.free[i] })
}

// Free returns the number of pages that no sequence holds: free ones and cached ones.
func (p *Pool) Free() int { return len(p.free) + p.cached() }

// cached returns the number of pages that only a later prompt can use.
func (p *Pool) cached() int { return p.lengths[unstored] + p.lengths[stored] }

// Ready returns how many of the free pages should be taken at once. The others are cached and should be copied to
// the host tier first.
func (p *Pool) Ready() int {
	n := len(p.free) + p.lengths[stored]
	if !p.mayStore() {
		n += p.lengths[unstored] - p.storing
	}
	return n
}

// Storing returns how many cached pages are being copied to the host tier. They become ready.
func (p *Pool) Storing() int { return p.storing }

// Stats returns the pool's counts.
func (p *Pool) Stats() Stats {
	s := p.stats
	s.Cached, s.HostPages, s.HostCached = p.cached(), p.host.total, p.lengths[onHost]
	s.HostSequence = p.host.sequences
	return s
}

// Version returns a positive number that each change of the pool raises. While it is the same, so is all that the
// pool says of its pages.
func (p *Pool) Version() uint64 { return p.version }

// Held reports whether a sequence holds the page.
func (p *Pool) Held(page int32) bool { return p.refs[page] > 0 }

// Shared reports whether a prompt of another sequence can find the page, so that its place must not change.
func (p *Pool) Shared(page int32) bool { return p.nodes[page] != nil || p.refs[page] > 1 }

// Take returns n pages with one reference each. Cached pages give way if too few are free, those that the host tier
// has first. It returns false if there are fewer than n, pages that are being copied not counted, and takes none.
func (p *Pool) Take(n int) ([]int32, bool) { return p.AppendTaken(nil, n) }

// AppendTaken is Take, and appends the pages to dst.
func (p *Pool) AppendTaken(dst []int32, n int) ([]int32, bool) {
	if n > p.Free()-p.storing {
		return dst, false
	}
	p.version++
	for len(p.free) < n {
		p.evict()
	}
	at := len(p.free) - n
	p.losePartialsOf(p.free[at:])
	for _, page := range p.free[at:] {
		p.refs[page] = 1
	}
	dst = append(dst, p.free[at:]...)
	p.free = p.free[:at]
	return dst, true
}

// Retain adds a reference to a page that is held or cached.
func (p *Pool) Retain(page int32) {
	p.version++
	if p.refs[page] == 0 && p.nodes[page] != nil {
		p.uncache(p.nodes[page])
		p.refs[page] = 1
		return
	}
	p.mustBeHeld(page)
	p.refs[page]++
}

// Release drops a reference to a page. With the last one the page is cached if it has a node, and free otherwise.
// Release a sequence's pages from the last to the first, so that the tail of a prompt gives way before its head.
func (p *Pool) Release(page int32) {
	p.mustBeHeld(page)
	p.version++
	if p.refs[page]--; p.refs[page] > 0 {
		return
	}
	if n := p.nodes[page]; n != nil {
		p.cache(n)
		return
	}
	p.free = append(p.free, page)
}

// mustBeHeld panics if the page has no reference. If the program went on, one sequence would read another's keys
// and values.
func (p *Pool) mustBeHeld(page int32) {
	if page <= 0 || int(page) >= len(p.refs) || p.refs[page] <= 0 {
		panic(fmt.Sprintf("kv: page %d is not held", page))
	}
}
