package kv

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// Check compares the pool with the model: no page or place is at two places, references are right, and lists, chains,
// roots and owners say what the nodes say.
func (m *model) Check(t *rapid.T) {
	nodes := m.nodes(t)
	m.checkPages(t)
	m.checkPartials(t, nodes)
	m.checkPlaces(t, nodes)
	m.checkLists(t, nodes)
	m.checkChains(t, nodes)
	m.checkOwners(t, nodes)
	m.checkVersion(t, nodes)
}

// nodes returns all nodes of the chains.
func (m *model) nodes(t *rapid.T) map[*Node]bool {
	all := map[*Node]bool{}
	for hash, n := range m.p.chains {
		for ; n != nil; n = n.sameHash {
			if all[n] || n.hash != hash || m.p.hash(n.parent.id, n.tokens) != hash || !m.p.Has(n) {
				t.Fatalf("node %d is in the chains twice, at a wrong hash, or on no tier", n.id)
			}
			all[n] = true
		}
	}
	for _, n := range m.seen {
		if all[n] != m.p.Has(n) {
			t.Fatalf("node %d: in the chains %v, Has %v", n.id, all[n], m.p.Has(n))
		}
	}
	return all
}

func (m *model) checkPages(t *rapid.T) {
	p, refs, cached := m.p, make([]int32, m.n+1), 0
	for _, q := range m.seqs {
		for _, page := range q.pages {
			refs[page]++
		}
	}
	for page := int32(1); int(page) <= m.n; page++ {
		n, free := p.nodes[page], 0
		for _, f := range p.free {
			if f == page {
				free++
			}
		}
		isCached := n != nil && refs[page] == 0
		if isCached {
			cached++
		}
		if p.refs[page] != refs[page] || n != nil && n.page != page || free > 1 ||
			(free == 1) != (refs[page] == 0 && !isCached) || p.Held(page) != (refs[page] > 0) {
			t.Fatalf("page %d: %d references, wants %d; %d times free, node %+v", page, p.refs[page], refs[page], free, n)
		}
	}
	if p.Free() != len(p.free)+cached || p.Stats().Cached != cached || p.Ready() > p.Free()-p.storing {
		t.Fatalf("%d free, %d ready, %d cached, wants %d", p.Free(), p.Ready(), p.Stats().Cached, cached)
	}
}

func (m *model) checkPlaces(t *rapid.T, nodes map[*Node]bool) {
	p, at, sequences, reserved, loading := m.p, make([]int, len(m.place)), 0, 0, 0
	for _, place := range p.host.free {
		at[place]++
	}
	for n := range nodes {
		if n.place >= 0 {
			at[n.place]++
		}
		if n.Loading() {
			loading++
		}
	}
	for _, c := range m.stores {
		at[c.at]++
	}
	for _, r := range m.reads {
		at[r.place]++
	}
	for _, q := range m.seqs {
		for _, place := range q.places {
			at[place]++
		}
		sequences += len(q.places)
		reserved += q.kept
	}
	for place, times := range at {
		if times != 1 {
			t.Fatalf("place %d is at %d places", place, times)
		}
	}
	h := p.host
	if h.total != len(m.place) || h.sequences != sequences || h.reserved != reserved || h.loading != loading ||
		reserved > h.total {
		t.Fatalf("%+v, wants %d places, %d of sequences, %d reserved, %d loading", h, len(m.place), sequences, reserved,
			loading)
	}
}

func (m *model) checkLists(t *rapid.T, nodes map[*Node]bool) {
	var lengths [lists]int
	storing := 0
	for _, o := range m.p.owners {
		for list := range lists {
			var older *Node
			for n := o.ends[list].oldest; n != nil; older, n = n, n.links[list].newer {
				if lengths[list]++; !n.links[list].in || n.links[list].older != older || n.owner != o || !nodes[n] {
					t.Fatalf("list %d of %v is broken at node %+v", list, o.Owner, n)
				}
			}
			if o.ends[list].newest != older {
				t.Fatalf("list %d of %v does not end with its newest node", list, o.Owner)
			}
		}
	}
	want := [lists]int{}
	for n := range nodes {
		cached := n.page != 0 && m.p.refs[n.page] == 0
		in := [lists]bool{unstored: cached && n.place < 0, stored: cached && n.place >= 0, onHost: n.place >= 0}
		for list, in := range in {
			if n.links[list].in != in {
				t.Fatalf("list %d has node %+v: %v", list, n, !in)
			}
			if in {
				want[list]++
			}
		}
		if n.busy && n.links[unstored].in {
			storing++
		}
	}
	if lengths != want || m.p.lengths != want || m.p.storing != storing {
		t.Fatalf("lists of %v nodes, counted %v, wants %v; %d being stored, wants %d", lengths, m.p.lengths, want,
			m.p.storing, storing)
	}
}

func (m *model) checkChains(t *rapid.T, nodes map[*Node]bool) {
	children, roots := map[*Node]int{}, map[string]*Node{}
	for n := range nodes {
		children[n.parent]++
		if n.parent.parent == nil && n.parent.tokens == nil {
			roots[n.scope] = n.parent
		}
		for other := range nodes {
			if n != other && n.parent == other.parent && slices.Equal(n.tokens, other.tokens) {
				t.Fatalf("%v comes twice after node %d", n.tokens, n.parent.id)
			}
		}
	}
	for n := range nodes {
		children[n] += 0
	}
	for n, want := range children {
		if n.children != want {
			t.Fatalf("node %d has %d children, wants %d", n.id, n.children, want)
		}
	}
	if len(m.p.roots) != len(roots) {
		t.Fatalf("%d roots, wants %d", len(m.p.roots), len(roots))
	}
	for scope, root := range roots {
		if m.p.roots[scope] != root {
			t.Fatalf("scope %q has another root", scope)
		}
	}
}

func (m *model) checkOwners(t *rapid.T, nodes map[*Node]bool) {
	type count struct {
		nodes int
		pages [tiers]int
	}
	want := map[Owner]count{}
	for n := range nodes {
		a := want[n.owner.Owner]
		a.nodes++
		if n.page != 0 {
			a.pages[onDevice]++
		}
		if n.place >= 0 {
			a.pages[inHost]++
		}
		want[n.owner.Owner] = a
		if m.p.owners[n.owner.Owner] != n.owner {
			t.Fatalf("node %d has another owner than %v", n.id, n.owner.Owner)
		}
	}
	if len(m.p.owners) != len(want) {
		t.Fatalf("%d owners, wants %d", len(m.p.owners), len(want))
	}
	m.checkAccounts(t)
	for user, a := range want {
		if o := m.p.owners[user]; o.nodes != a.nodes || o.pages != a.pages {
			t.Fatalf("%v: %+v, wants %+v", user, o, a)
		}
	}
}

// checkAccounts checks that each user's account has its owners and the sums of their pages.
func (m *model) checkAccounts(t *rapid.T) {
	pages, owners := map[uint64][tiers]int{}, map[uint64]int{}
	for name, o := range m.p.owners {
		sum := pages[name.User]
		for tier, n := range o.pages {
			sum[tier] += n
		}
		pages[name.User] = sum
		owners[name.User]++
		if o.of != m.p.accounts[name.User] || !slices.Contains(o.of.owners, o) {
			t.Fatalf("the account of %v lacks it", name)
		}
	}
	if len(m.p.accounts) != len(pages) {
		t.Fatalf("%d accounts, wants %d", len(m.p.accounts), len(pages))
	}
	for user, a := range m.p.accounts {
		if a.pages != pages[user] || len(a.owners) != owners[user] {
			t.Fatalf("user %d: %+v, wants %v of %d owners", user, a, pages[user], owners[user])
		}
	}
}

// checkVersion checks that the pool has another version if it tells another thing of its pages than before.
func (m *model) checkVersion(t *rapid.T, nodes map[*Node]bool) {
	p := m.p
	told := fmt.Sprint(p.Free(), p.Ready(), p.Storing(), p.host.reserved, p.refs)
	byID := func(a, b *Node) int { return cmp.Compare(a.id, b.id) }
	for _, n := range slices.SortedFunc(maps.Keys(nodes), byID) {
		told += fmt.Sprint(" ", n.id, n.page, n.Loading(), p.Counted(n))
	}
	if told != m.told && p.Version() == m.version {
		t.Fatalf("version %d tells %s, and before %s", m.version, told, m.told)
	}
	m.told, m.version = told, p.Version()
}
