package kv

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// modelRead is a page that is being read from a file into a place.
type modelRead struct {
	parent  *Node // nil: the root
	scope   string
	tokens  []int32
	content string
	user    uint64
	place   int32
}

// Read begins to read the next page of a sequence's prompt from a file, as for one that is not added yet.
func (m *model) Read(t *rapid.T) {
	q := m.any(t)
	if q.alone || q.next*modelPageTokens == len(q.prompt) {
		t.Skip()
	}
	var found []*Node
	if q.tail != nil {
		found = []*Node{q.tail}
	}
	for _, place := range m.p.BeginRead(rapid.IntRange(1, 2).Draw(t, "places"), found) {
		m.place[place] = ""
		m.reads = append(m.reads, modelRead{q.tail, q.scope, q.run(q.next), q.content(q.next), q.user, place})
	}
}

// ReadDone ends a read, of a damaged file too.
func (m *model) ReadDone(t *rapid.T) {
	if len(m.reads) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.reads)-1).Draw(t, "read")
	r := m.reads[i]
	m.reads = slices.Delete(m.reads, i, i+1)
	if r.parent == nil {
		r.parent = m.p.Root(r.scope)
	} else if !m.p.Has(r.parent) {
		m.p.EndRead(r.place)
		return
	}
	if rapid.IntRange(0, 4).Draw(t, "damaged") == 0 {
		m.p.EndRead(r.place)
		return
	}
	m.place[r.place] = r.content
	n := m.p.FinishRead(r.parent, r.tokens, r.place, r.user, [32]byte{1})
	if n.File() == ([32]byte{}) || m.p.Find(r.parent, r.tokens) != n {
		t.Fatalf("a page that was read is not found, or knows no file")
	}
	m.seen = append(m.seen, n)
	m.read++
}

// Reading a prompt's next pages takes the places of other pages before those of the prompt itself.
func TestReadsSpareTheirOwnPrompt(t *testing.T) {
	p := New(9, 1)
	p.AddPlaces(6)
	read := func(found []*Node, first int32, n int) []*Node {
		parent := p.Root("a")
		if len(found) > 0 {
			parent = found[len(found)-1]
		}
		for i, place := range p.BeginRead(n, found) {
			parent = p.FinishRead(parent, []int32{first + int32(len(found)+i)}, place, 1, [32]byte{1})
			found = append(found, parent)
		}
		return found
	}
	mine := read(nil, 0, 3)
	other := read(nil, 100, 3)
	mine = read(mine, 0, 2)
	for i, n := range mine {
		if !p.Has(n) {
			t.Errorf("page %d of the prompt gave way to its own next pages", i)
		}
	}
	if len(mine) != 5 || p.Has(other[1]) || p.Has(other[2]) || !p.Has(other[0]) {
		t.Errorf("%d pages of the prompt; of the other %v %v %v", len(mine), p.Has(other[0]), p.Has(other[1]),
			p.Has(other[2]))
	}
}

// The pages of a prompt that is being read give way from the tail on. So nothing passes over its head each time.
func TestReadsPutTheTailFirst(t *testing.T) {
	p := New(9, 1)
	p.AddPlaces(9)
	var found []*Node
	parent := p.Root("a")
	for _, place := range p.BeginRead(4, nil) {
		parent = p.FinishRead(parent, []int32{int32(len(found))}, place, 1, [32]byte{1})
		found = append(found, parent)
	}
	p.BeginRead(1, found)
	if oldest := parent.owner.ends[onHost].oldest; oldest != parent {
		t.Errorf("page %v is the first to be looked at, not the tail", oldest.tokens)
	}
}

// Pages that are being stored stand behind those that are not. So beginning many stores passes over none of them.
func TestStoresPassOverNone(t *testing.T) {
	p := New(100, 2)
	p.AddPlaces(100)
	flood(t, p, 1, oneName, 100)
	for range 99 {
		n, _ := p.BeginStore()
		if first := n.owner.ends[unstored].oldest; first.busy {
			t.Fatal("a page that is being stored is the first to be looked at")
		}
	}
}
