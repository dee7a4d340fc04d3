package gateway

import (
	"container/list"
	"encoding/binary"
	"hash/maphash"
	"sync"

	"reel.internal/reel/client"
	"reel.internal/reel/protocol"
)

const (
	// maxPrefixes bounds the nodes that the prefixes of a model have: about 10 MiB.
	maxPrefixes = 1 << 16
	// leastChunk is the bytes of a prompt between its first marks, about a page of KV. After every
	// marksOfSize marks it doubles, so that a prompt of 4 MiB has 640.
	leastChunk  = 64
	marksOfSize = 64
)

// prefixes remembers which generators of a model prompts were sent to: a tree for each user, so that no
// user learns what another one asked. It holds no text. A node stands for the beginning of a prompt up
// to a mark: its key is the hash of all that comes before. So the nodes of a tree fit a map, and a
// prompt's path is the list of its marks. Beyond the bound the user who has the most nodes loses the one
// that was used least recently; nodes near the root are used whenever those below them are.
type prefixes struct {
	most int // nodes
	seed maphash.Seed

	mu    sync.Mutex
	users map[string]*trails
	nodes int
}

// trails are the nodes of a user.
type trails struct {
	nodes  map[uint64]*list.Element // of *node
	recent list.List                // the one used last is at the front
}

// node is the beginning of prompts.
type node struct {
	mark uint64
	with uint64 // bit i: they were sent to the generator of index i
}

func newPrefixes(most int) *prefixes {
	return &prefixes{most: most, seed: maphash.MakeSeed(), users: map[string]*trails{}}
}

// find returns the generators to which the longest known beginning of a user's prompt was sent, and the
// bytes of that beginning.
func (p *prefixes) find(user string, marks []uint64) (with uint64, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.users[user]
	if t == nil {
		return 0, 0
	}
	for i, mark := range marks {
		e := t.nodes[mark]
		if e == nil {
			break
		}
		with = e.Value.(*node).with
		bytes += chunkBytes(i)
	}
	return with, bytes
}

// note remembers that a user's prompt was sent to the generator of an index.
func (p *prefixes) note(user string, marks []uint64, index int) {
	if len(marks) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.users[user]
	if t == nil {
		t = &trails{nodes: map[uint64]*list.Element{}}
		p.users[user] = t
	}
	for i := len(marks) - 1; i >= 0; i-- { // so that the root is the most recent
		e := t.nodes[marks[i]]
		if e == nil {
			e = t.recent.PushFront(&node{mark: marks[i]})
			t.nodes[marks[i]] = e
			p.nodes++
		}
		t.recent.MoveToFront(e)
		e.Value.(*node).with |= 1 << index
	}
	for p.nodes > p.most {
		p.drop()
	}
}

// drop drops a node. p.mu is held.
func (p *prefixes) drop() {
	var most *trails
	var user string
	for name, t := range p.users {
		if most == nil || len(t.nodes) > len(most.nodes) {
			most, user = t, name
		}
	}
	oldest := most.recent.Back()
	delete(most.nodes, most.recent.Remove(oldest).(*node).mark)
	p.nodes--
	if len(most.nodes) == 0 {
		delete(p.users, user)
	}
}

// chunkBytes returns the bytes between the marks i - 1 and i.
func chunkBytes(i int) int { return leastChunk << (i / marksOfSize) }

// marks returns the marks of a request's prompt; none if p is nil or the request uses no cached pages.
func (p *prefixes) marks(req *client.Request) []uint64 {
	if p == nil || req.Cache == protocol.CacheOff {
		return nil
	}
	m := marker{left: chunkBytes(0)}
	m.hash.SetSeed(p.seed)
	m.write(req.Tools)
	for i := range req.Messages {
		one := &req.Messages[i]
		m.write(one.Role, one.Name, one.ToolCallID, one.Reasoning, one.Content)
		for _, call := range one.ToolCalls {
			m.write(call.ID, call.Name, call.Arguments)
		}
	}
	m.write(req.Prompt)
	for _, id := range req.Tokens {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		m.write(string(b[:]))
	}
	return m.marks
}

// marker marks a text that is written to it.
type marker struct {
	hash  maphash.Hash // of all text so far
	left  int          // bytes to the next mark
	marks []uint64
}

func (m *marker) write(texts ...string) {
	for _, text := range texts {
		for len(text) >= m.left {
			_, _ = m.hash.WriteString(text[:m.left]) // never fails
			text = text[m.left:]
			m.marks = append(m.marks, m.hash.Sum64())
			m.left = chunkBytes(len(m.marks))
		}
		_, _ = m.hash.WriteString(text)
		m.left -= len(text)
	}
}
