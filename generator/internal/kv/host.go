package kv

// host is the tier in host memory. Its places hold a page each: those of cached nodes, which give way, and those of
// sequences that moved out, which stay. Running sequences reserve places for the pages that may have to move out,
// so cached nodes always give way to them.
type host struct {
	total     int
	free      []int32
	reserved  int // for sequences, running or moved out
	sequences int // taken by sequences
	loading   int // nodes that are being copied to the device
}

// mayStore reports whether the tier has a place for a cached page, or can make one without taking it from another
// cached page of the device: storing one to make room for the other would never end.
func (p *Pool) mayStore() bool {
	return len(p.host.free)+p.lengths[onHost]-p.lengths[stored]-p.host.loading > 0
}

// AddPlaces adds n places to the host tier. Places are numbered from 0 in the order in which they are added.
func (p *Pool) AddPlaces(n int) {
	p.version++
	for range n {
		p.host.free = append(p.host.free, int32(p.host.total))
		p.host.total++
	}
}

// Reserve reserves n places for pages of a sequence that may have to move out. It returns false if there are fewer.
func (p *Pool) Reserve(n int) bool {
	if !p.MayReserve(n) {
		return false
	}
	p.version++
	p.host.reserved += n
	return true
}

// Unreserve ends the reservation of n places.
func (p *Pool) Unreserve(n int) {
	p.version++
	p.host.reserved -= n
}

// TakePlaces takes n reserved places for pages of a sequence. It returns false while too many cached nodes are being
// copied, which is for a moment only.
func (p *Pool) TakePlaces(n int) ([]int32, bool) {
	if n > len(p.host.free)+p.lengths[onHost]-p.host.loading {
		return nil, false
	}
	p.version++
	places := make([]int32, 0, n)
	for range n {
		places = append(places, p.takePlace(anyNode))
	}
	p.host.sequences += n
	return places, true
}

// GivePlaces frees places that TakePlaces returned.
func (p *Pool) GivePlaces(places []int32) {
	p.version++
	p.host.free = append(p.host.free, places...)
	p.host.sequences -= len(places)
}

// takeStorePlace returns a place for a page that is stored or read. mayStore holds. No page that is cached on the
// device loses its place to it.
func (p *Pool) takeStorePlace() int32 {
	return p.takePlace(func(n *Node) bool { return !n.links[stored].in })
}

// takePlace returns a free place. If there is none, a cached node that may leave the tier gives way.
func (p *Pool) takePlace(may func(*Node) bool) int32 {
	if len(p.host.free) == 0 {
		p.leaveHost(p.oldest(inHost, firstOf(onHost, may, func(n *Node) bool { return n.page == 0 })))
	}
	at := len(p.host.free) - 1
	place := p.host.free[at]
	p.host.free = p.host.free[:at]
	return place
}

// leaveHost frees the place of a node.
func (p *Pool) leaveHost(n *Node) {
	p.unlink(onHost, n)
	p.host.free = append(p.host.free, n.place)
	n.place = -1
	if n.page == 0 {
		p.forget(n)
	} else if n.links[stored].in {
		p.unlink(stored, n)
		p.push(unstored, n)
	}
	p.disown(n, inHost)
}

// BeginStore returns the cached page that is next to be copied to the host tier, and the place to copy it to; nil if
// there is none. FinishStore must follow.
func (p *Pool) BeginStore() (*Node, int32) {
	if p.lengths[unstored] == p.storing || !p.mayStore() {
		return nil, 0
	}
	p.version++
	n := p.oldest(onDevice, firstOf(unstored, anyNode, func(*Node) bool { return false }))
	n.busy = true // so that takePlace leaves it alone
	p.unlink(unstored, n)
	p.push(unstored, n) // so that the next call need not pass it
	p.storing++
	return n, p.takeStorePlace()
}

// FinishStore notes that a node's page is in its place.
func (p *Pool) FinishStore(n *Node, place int32) {
	p.version++
	n.busy, n.place = false, place
	n.owner.count(inHost, 1)
	p.push(onHost, n)
	p.stats.Stored++
	if n.links[unstored].in {
		p.storing--
		p.unlink(unstored, n)
		p.push(stored, n)
	}
}

// BeginLoad begins to copy a node of the host tier to a held page and returns its place. FinishLoad must follow;
// until then no step may read the page.
func (p *Pool) BeginLoad(n *Node, page int32) (place int32) {
	p.mustBeHeld(page)
	p.version++
	n.page, n.busy, n.step = page, true, 0
	p.nodes[page] = n
	p.host.loading++
	n.owner.count(onDevice, 1)
	return n.place
}

// FinishLoad notes that a node's page is on the device.
func (p *Pool) FinishLoad(n *Node) {
	p.version++
	n.busy = false
	p.host.loading--
	p.stats.Loaded++
}

// MayReserve reports whether n more places can be reserved.
func (p *Pool) MayReserve(n int) bool { return p.host.reserved+n <= p.host.total }

// Counted reports whether a cached node's page counts in [Pool.Ready].
func (p *Pool) Counted(n *Node) bool { return n.links[stored].in || !n.busy && !p.mayStore() }
