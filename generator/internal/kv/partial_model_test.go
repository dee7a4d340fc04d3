package kv

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// LeavePartial releases a page with one token after those of any node.
func (m *model) LeavePartial(t *rapid.T) {
	parent := anyOf(t, m.nodes(t))
	user := m.owner(t).User
	pages := m.p.TakeSpare(1, Owner{user, parent.scope})
	if len(pages) == 0 {
		t.Skip()
	}
	m.taken(pages)
	token := rapid.Int32Range(0, 1).Draw(t, "token")
	m.page[pages[0]] = partialContent(parent, token)
	m.p.ReleasePartial(parent, []int32{token}, pages[0], user)
}

// partialContent is what a partial page with one token holds.
func partialContent(parent *Node, token int32) string {
	return fmt.Sprintf("%d after node %d", token, parent.id)
}

// TakePartial gives a sequence the partial page after any node, which still holds what it held.
func (m *model) TakePartial(t *rapid.T) {
	parent := anyOf(t, m.nodes(t))
	token := rapid.Int32Range(0, 1).Draw(t, "token")
	if len(m.seqs) > 3 || m.p.FindPartial(parent, []int32{token, 7}) == 0 {
		t.Skip()
	}
	page := m.p.TakePartial(parent)
	if m.page[page] != partialContent(parent, token) {
		t.Fatalf("page %d was found as %s, and holds %s", page, partialContent(parent, token), m.page[page])
	}
	m.partial++
	m.seqs = append(m.seqs, &modelSequence{user: 1, pages: []int32{page}, next: 1, alone: true})
}

// anyOf draws a node.
func anyOf(t *rapid.T, nodes map[*Node]bool) *Node {
	if len(nodes) == 0 {
		t.Skip()
	}
	byID := func(a, b *Node) int { return cmp.Compare(a.id, b.id) }
	return rapid.SampledFrom(slices.SortedFunc(maps.Keys(nodes), byID)).Draw(t, "node")
}

// checkPartials checks that partial pages are free, and come after nodes of the chains.
func (m *model) checkPartials(t *rapid.T, nodes map[*Node]bool) {
	found := 0
	for n := range nodes {
		if n.partial == nil {
			continue
		}
		if found++; m.p.partials[n.partial.page] != n || !slices.Contains(m.p.free, n.partial.page) {
			t.Fatalf("the partial page %d after node %d is not free, or another node's", n.partial.page, n.id)
		}
	}
	if found != len(m.p.partials) {
		t.Fatalf("%d partial pages, wants %d", len(m.p.partials), found)
	}
}
