package store

import "container/heap"

// maxPages bounds the pages of a store, about 300 bytes of memory each.
const maxPages = 1 << 18

// index counts the files and keeps the order in which they give way: files of other identities first; then the
// least recently used page of a user above an equal share, or of all users; always one that no stored page follows.
type index struct {
	entries map[ID]*entry
	after   map[ID]int // by digest: the pages whose parent it is
	owners  map[uint64]*owner
	scopes  map[string]int // pages by scope, without those of other identities
	foreign *owner         // of the files of other identities and versions
	bytes   int64
}

// entry is a file, or one that is being written.
type entry struct {
	id, parent ID
	owner      *owner
	user       uint64
	scope      string
	size       int64 // rounded up
	used       int64 // nanoseconds since 1970
	writing    bool
	touched    bool   // it is in Store.touched
	temporary  string // name of the file while writing
	at         int    // in its owner's leaves; -1 if it is not there
}

// owner is a user with pages.
type owner struct {
	user   uint64
	pages  int
	bytes  int64
	leaves leaves
}

func newIndex() index {
	return index{entries: map[ID]*entry{}, after: map[ID]int{}, owners: map[uint64]*owner{}, scopes: map[string]int{}, foreign: &owner{}}
}

// add adds a page of a user.
func (x *index) add(e *entry, user uint64) {
	o := x.owners[user]
	if o == nil {
		o = &owner{user: user}
		x.owners[user] = o
	}
	e.user = user
	x.scopes[e.scope]++
	x.addTo(o, e)
}

func (x *index) addTo(o *owner, e *entry) {
	e.owner, e.at = o, -1
	x.entries[e.id] = e
	o.pages, o.bytes, x.bytes = o.pages+1, o.bytes+e.size, x.bytes+e.size
	x.after[e.parent]++
	x.settle(e)
	x.settle(x.entries[e.parent])
}

func (x *index) remove(e *entry) {
	o := e.owner
	if e.at >= 0 {
		heap.Remove(&o.leaves, e.at)
	}
	delete(x.entries, e.id)
	if x.after[e.parent]--; x.after[e.parent] == 0 {
		delete(x.after, e.parent)
	}
	x.settle(x.entries[e.parent])
	o.pages, o.bytes, x.bytes = o.pages-1, o.bytes-e.size, x.bytes-e.size
	if o == x.foreign {
		return
	}
	if o.pages == 0 {
		delete(x.owners, o.user)
	}
	if x.scopes[e.scope]--; x.scopes[e.scope] == 0 {
		delete(x.scopes, e.scope)
	}
}

// settle puts an entry to its place among the leaves, after a change of its use or of the pages after it.
func (x *index) settle(e *entry) {
	switch {
	case e == nil:
	case e.writing || x.after[e.id] > 0:
		if e.at >= 0 {
			heap.Remove(&e.owner.leaves, e.at)
		}
	case e.at >= 0:
		heap.Fix(&e.owner.leaves, e.at)
	default:
		heap.Push(&e.owner.leaves, e)
	}
}

// pages returns the number of pages of this identity.
func (x *index) pages() int { return len(x.entries) - x.foreign.pages }

// over reports whether a page has to give way.
func (x *index) over(bytes int64) bool { return x.bytes > bytes || len(x.entries) > maxPages }

// victim returns the page that gives way next, or nil.
func (x *index) victim() *entry {
	if len(x.foreign.leaves) > 0 {
		return x.foreign.leaves[0]
	}
	total := x.bytes - x.foreign.bytes
	var victim *entry
	victimAbove := false
	for _, o := range x.owners {
		if len(o.leaves) == 0 {
			continue
		}
		above, e := o.bytes*int64(len(x.owners)) > total, o.leaves[0]
		if victim == nil || above && !victimAbove || above == victimAbove && e.used < victim.used {
			victim, victimAbove = e, above
		}
	}
	return victim
}

// leaves is a heap of pages that no stored page follows, the least recently used first.
type leaves []*entry

func (l leaves) Len() int           { return len(l) }
func (l leaves) Less(i, j int) bool { return l[i].used < l[j].used }

func (l leaves) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].at, l[j].at = i, j
}

// Push implements [heap.Interface].
func (l *leaves) Push(e any) {
	e.(*entry).at = len(*l)
	*l = append(*l, e.(*entry))
}

// Pop implements [heap.Interface].
func (l *leaves) Pop() any {
	last := len(*l) - 1
	e := (*l)[last]
	(*l)[last] = nil
	*l, e.at = (*l)[:last], -1
	return e
}
