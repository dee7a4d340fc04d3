package kv

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// model drives a Pool as a scheduler does, with sequences that take, find, publish and move pages, and with copies
// that end at any time. It knows what every page and place holds, and so which pages a prompt may find.
// RAPID_CHECKS and RAPID_STEPS lengthen its tests.
type model struct {
	p       *Pool
	n       int      // pages
	page    []string // by page: the scope and tokens up to its last, as computed; "" while that is not known
	place   []string // by place
	seqs    []*modelSequence
	stores  []modelCopy
	loads   []modelCopy
	reads   []modelRead
	seen    []*Node // nodes that Find returned, kept as waiting sequences keep them
	made    int     // pages taken, to give each a content of its own
	users   int
	read    int // pages read from files
	partial int // partial pages taken

	version uint64 // after the last action
	told    string // what the pool told of its pages then
}

// modelSequence is a sequence that holds pages.
type modelSequence struct {
	user   uint64
	scope  string
	prompt []int32
	pages  []int32
	next   int   // pages that are computed or found
	tail   *Node // of its pages in the chains; nil at the root
	alone  bool  // it leaves no further pages
	loads  int   // copies to its pages under way
	kept   int   // reserved places
	places []int32
}

// modelCopy is a copy under way.
type modelCopy struct {
	node *Node
	at   int32 // the place it goes to, or comes from
	q    *modelSequence
}

const modelPageTokens = 2

func newModel(t *rapid.T) *model {
	n := rapid.IntRange(1, 9).Draw(t, "pages")
	m := &model{p: New(n, modelPageTokens), n: n, page: make([]string, n+1)}
	m.users = rapid.IntRange(1, 3).Draw(t, "users")
	m.addPlaces(rapid.IntRange(0, 6).Draw(t, "places"))
	if rapid.Bool().Draw(t, "collisions") {
		m.p.hash = func(uint64, []int32) uint64 { return 7 }
	}
	return m
}

// content returns what the page with the i-th run of q's prompt holds.
func (q *modelSequence) content(i int) string {
	return fmt.Sprint(q.scope, q.prompt[:(i+1)*modelPageTokens])
}

func (q *modelSequence) run(i int) []int32 {
	return q.prompt[i*modelPageTokens : (i+1)*modelPageTokens]
}

func (m *model) parent(q *modelSequence) *Node {
	if q.tail == nil {
		return m.p.Root(q.scope)
	}
	return q.tail
}

// taken notes that pages were given out: they hold nothing that anybody may read.
func (m *model) taken(pages []int32) {
	for _, page := range pages {
		m.made++
		m.page[page] = fmt.Sprint("unwritten ", m.made)
	}
}

// Join gives a new sequence pages: those of its prompt that are on the device and not being loaded, and new ones.
func (m *model) Join(t *rapid.T) {
	if len(m.seqs) > 3 {
		t.Skip()
	}
	o := m.owner(t)
	q := &modelSequence{user: o.User, scope: o.Scope}
	pages := rapid.IntRange(1, min(5, m.n)).Draw(t, "pages")
	for range pages { // of few kinds, so that prompts have pages in common
		q.prompt = append(q.prompt, rapid.Int32Range(0, 1).Draw(t, "token"), 7)
	}
	for q.next < pages {
		n := m.find(t, q)
		if n == nil || n.Page() == 0 || n.Loading() {
			break
		}
		m.p.Retain(n.Page()) // before any page is taken, so that it does not give way
		q.pages, q.tail = append(q.pages, n.Page()), n
		q.next++
	}
	if taken := m.take(t, pages-q.next); len(taken) == pages-q.next {
		q.pages = append(q.pages, taken...)
		m.seqs = append(m.seqs, q)
	} else {
		m.release(q)
	}
}

// take takes n pages. It must succeed for as many as are ready, and fail for more than are free.
func (m *model) take(t *rapid.T, n int) []int32 {
	ready, free := m.p.Ready(), m.p.Free()
	pages, ok := m.p.Take(n)
	if !ok && n <= ready || ok && n > free {
		t.Fatalf("took %d pages: %v; %d ready, %d free", n, ok, ready, free)
	}
	m.taken(pages)
	return pages
}

// find looks for q's next page and checks that the node found holds it.
func (m *model) find(t *rapid.T, q *modelSequence) *Node {
	n := m.p.Find(m.parent(q), q.run(q.next))
	if n == nil {
		return nil
	}
	m.seen = append(m.seen, n)
	if want := q.content(q.next); n.page != 0 && !n.Loading() && m.page[n.page] != want ||
		n.place >= 0 && m.place[n.place] != want {
		t.Fatalf("%s was found as %q on the device, place %d", want, m.page[n.page], n.place)
	}
	return n
}

// Compute ends q's next page: it is found meanwhile, loaded, or computed and published.
func (m *model) Compute(t *rapid.T) {
	q := m.any(t)
	if q.next == len(q.pages) || q.next*modelPageTokens == len(q.prompt) || q.loads > 0 {
		t.Skip()
	}
	if q.alone {
		m.page[q.pages[q.next]] = q.content(q.next)
		q.next++
		return
	}
	if n := m.find(t, q); n != nil {
		switch {
		case n.Page() == 0:
			m.loads = append(m.loads, modelCopy{n, m.p.BeginLoad(n, q.pages[q.next]), q})
			q.loads++
		case n.Loading():
			t.Skip()
		default:
			m.p.Retain(n.Page())
			m.p.Release(q.pages[q.next])
			q.pages[q.next] = n.Page()
		}
		q.tail = n
		q.next++
		return
	}
	m.page[q.pages[q.next]] = q.content(q.next)
	q.tail = m.p.Publish(m.parent(q), q.run(q.next), q.pages[q.next], 1, q.user)
	q.alone = q.tail == nil || rapid.IntRange(0, 9).Draw(t, "leaves no more") == 0
	q.next++
}

// any draws a sequence.
func (m *model) any(t *rapid.T) *modelSequence {
	if len(m.seqs) == 0 {
		t.Skip()
	}
	return rapid.SampledFrom(m.seqs).Draw(t, "sequence")
}

// Leave ends a sequence whose pages are not being copied.
func (m *model) Leave(t *rapid.T) {
	q := m.any(t)
	if q.loads > 0 {
		t.Skip()
	}
	for i := range m.seqs {
		if m.seqs[i] == q {
			m.seqs = append(m.seqs[:i], m.seqs[i+1:]...)
			break
		}
	}
	m.release(q)
}

func (m *model) release(q *modelSequence) {
	for i := range q.pages {
		m.p.Release(q.pages[len(q.pages)-1-i])
	}
	m.p.GivePlaces(q.places)
	m.p.Unreserve(q.kept)
}

// Store begins a copy to the host tier.
func (m *model) Store(t *rapid.T) {
	n, place := m.p.BeginStore()
	if n == nil {
		t.Skip()
	}
	m.place[place] = ""
	m.stores = append(m.stores, modelCopy{n, place, nil})
}

// Stored ends one. The device may copy at the last moment.
func (m *model) Stored(t *rapid.T) {
	if len(m.stores) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.stores)-1).Draw(t, "copy")
	c := m.stores[i]
	m.stores = append(m.stores[:i], m.stores[i+1:]...)
	m.place[c.at] = m.page[c.node.page]
	m.p.FinishStore(c.node, c.at)
}

// Loaded ends a copy from the host tier.
func (m *model) Loaded(t *rapid.T) {
	if len(m.loads) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(m.loads)-1).Draw(t, "copy")
	c := m.loads[i]
	m.loads = append(m.loads[:i], m.loads[i+1:]...)
	m.page[c.node.page] = m.place[c.at]
	c.q.loads--
	m.p.FinishLoad(c.node)
}

// Grow adds places to the host tier.
func (m *model) Grow(t *rapid.T) {
	n := rapid.IntRange(1, 2).Draw(t, "places")
	if len(m.place) > 8 {
		t.Skip()
	}
	m.addPlaces(n)
}

func (m *model) addPlaces(n int) {
	m.p.AddPlaces(n)
	m.place = append(m.place, make([]string, n)...)
}

// Reserve reserves places for a sequence's pages.
func (m *model) Reserve(t *rapid.T) {
	q := m.any(t)
	n := rapid.IntRange(1, 5).Draw(t, "places")
	may := m.p.MayReserve(n)
	if m.p.Reserve(n) != may {
		t.Fatalf("%d places could be reserved: %v", n, may)
	}
	if may {
		q.kept += n
	}
}

// MoveOut takes a sequence's reserved places. Nothing but copies under way may keep it from them.
func (m *model) MoveOut(t *rapid.T) {
	q := m.any(t)
	n := q.kept - len(q.places)
	places, ok := m.p.TakePlaces(n)
	if !ok && len(m.stores)+len(m.loads)+len(m.reads) == 0 {
		t.Fatalf("%d reserved places cannot be taken", n)
	}
	for _, place := range places {
		m.made++
		m.place[place] = fmt.Sprint("moved out ", m.made)
	}
	q.places = append(q.places, places...)
}

// MoveIn gives them back.
func (m *model) MoveIn(t *rapid.T) {
	q := m.any(t)
	m.p.GivePlaces(q.places)
	q.places = nil
}

// owner draws a user and a scope: odd users have a scope for all of them, others one for each of two names.
func (m *model) owner(t *rapid.T) Owner {
	user := rapid.IntRange(1, m.users).Draw(t, "user")
	if user%2 == 1 {
		return Owner{uint64(user), "all"}
	}
	return Owner{uint64(user), fmt.Sprint("user ", user, rapid.SampledFrom([]string{"", " key"}).Draw(t, "name"))}
}

// owned returns the number of pages that an owner published.
func (m *model) owned(owner Owner) int {
	if o := m.p.owners[owner]; o != nil {
		return o.nodes
	}
	return 0
}

// Drop drops an owner's cached pages.
func (m *model) Drop(t *rapid.T) {
	user := m.owner(t)
	if rapid.IntRange(0, 7).Draw(t, "drop") > 0 { // nothing would stay long
		t.Skip()
	}
	before, others := m.owned(user), m.reachable(t, user)
	dropped := m.p.DropOwned(user)
	if left := m.reachable(t, user); left != others {
		t.Fatalf("of %d pages of others %d can be found after %v dropped its own", others, left, user)
	}
	if left := m.owned(user); left != before-dropped {
		t.Fatalf("dropped %d of %d pages, left %d", dropped, before, left)
	}
}

// reachable returns the number of pages of others than one owner that prompts can find.
func (m *model) reachable(t *rapid.T, owner Owner) (found int) {
	nodes := m.nodes(t)
	for n := range nodes {
		parent := n.parent
		for nodes[parent] {
			parent = parent.parent
		}
		if n.owner.Owner != owner && m.p.roots[n.scope] == parent {
			found++
		}
	}
	return found
}

// Spare takes pages that nobody else wants.
func (m *model) Spare(t *rapid.T) {
	user := m.owner(t)
	if len(m.seqs) > 3 {
		t.Skip()
	}
	others := map[Owner]int{}
	for _, o := range m.p.Owners() {
		others[o] = m.owned(o)
	}
	pages := m.p.TakeSpare(rapid.IntRange(1, 3).Draw(t, "pages"), user)
	for o, n := range others {
		if o != user && m.owned(o) != n {
			t.Fatalf("%v lost %d pages to %v", o, n-m.owned(o), user)
		}
	}
	m.taken(pages)
	m.seqs = append(m.seqs, &modelSequence{user: user.User, pages: pages, next: len(pages), alone: true})
}

// The pool keeps its account whatever happens in whatever order, and a prompt finds its own pages only.
func TestPoolEqualsModel(t *testing.T) {
	var stored, loaded, evicted uint64
	read, partial := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		actions := rapid.StateMachineActions(m)
		for _, often := range []string{"Join", "Compute", "Leave", "Store", "Stored", "LeavePartial", "TakePartial"} {
			actions[often+" too"], actions[often+" also"] = actions[often], actions[often]
		}
		for range 60 {
			t.Repeat(actions)
		}
		for len(m.stores) > 0 {
			m.Stored(t)
		}
		for len(m.loads) > 0 {
			m.Loaded(t)
		}
		for len(m.reads) > 0 {
			m.ReadDone(t)
		}
		for _, q := range m.seqs {
			m.release(q)
		}
		m.seqs = nil
		m.Check(t)
		if m.p.Free() != m.n || !m.p.MayReserve(len(m.place)) {
			t.Fatalf("%d pages of %d are free at the end, %+v", m.p.Free(), m.n, m.p.Stats())
		}
		read, partial = read+m.read, partial+m.partial
		s := m.p.Stats()
		stored, loaded, evicted = stored+s.Stored, loaded+s.Loaded, evicted+s.Evicted
	})
	if t.Logf("%d pages stored, %d loaded, %d forgotten, %d read, %d partial ones taken", stored, loaded, evicted, read,
		partial); !t.Failed() && min(stored, loaded, evicted, uint64(read), uint64(partial)) == 0 {
		t.Error("some event that this test needs never happened")
	}
}
