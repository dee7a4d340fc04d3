package tokenizer

import "fmt"

// bpe is the BPE model over bytes.
type bpe struct {
	ids          map[string]int32 // by the bytes a token stands for
	byteIDs      [256]int32       // -1 where no token is that byte
	merges       map[pair]merge
	ignoreMerges bool // a piece that is a token is that token, merged or not
}

// pair is two neighbours.
type pair struct{ left, right int32 }

// merge is what a pair becomes. A lower rank goes first.
type merge struct{ rank, id int32 }

// encoder appends ids to out, one piece of text after another. It lives for
// one Encode.
type encoder struct {
	m       *bpe
	out     []int32
	seen    map[string]span // pieces already encoded, and where in out
	symbols []symbol
	queue   queue
}

type span struct{ from, to int }

// symbol is a node of the doubly linked list of a piece's current parts.
type symbol struct {
	id         int32
	prev, next int32 // -1 at the ends
	dead       bool  // merged into its left neighbour
}

func (m *bpe) encoder(prefix []int32, textBytes int) *encoder {
	out := make([]int32, 0, len(prefix)+textBytes/3+8)
	return &encoder{m: m, out: append(out, prefix...), seen: map[string]span{}}
}

// encode appends the ids of one piece. A piece seen before is copied.
func (e *encoder) encode(piece string) {
	if s, ok := e.seen[piece]; ok {
		e.out = append(e.out, e.out[s.from:s.to]...)
		return
	}
	from := len(e.out)
	if id, ok := e.m.ids[piece]; ok && e.m.ignoreMerges {
		e.out = append(e.out, id)
	} else {
		e.merge(piece)
	}
	e.seen[piece] = span{from, len(e.out)}
}

// merge applies the merges to piece, the lowest rank first and of equal ranks
// the leftmost, until none applies. A heap of candidates keeps it n log n.
func (e *encoder) merge(piece string) {
	e.start(piece)
	for len(e.queue) > 0 {
		c := e.queue.pop()
		left := &e.symbols[c.pos]
		if left.dead || left.next < 0 {
			continue
		}
		// The candidate is stale where its neighbours have changed since.
		right := &e.symbols[left.next]
		if m, ok := e.m.merges[pair{left.id, right.id}]; !ok || m.id != c.id {
			continue
		}
		left.id, left.next, right.dead = c.id, right.next, true
		if left.next >= 0 {
			e.symbols[left.next].prev = c.pos
			e.offer(c.pos, left.next)
		}
		if left.prev >= 0 {
			e.offer(left.prev, c.pos)
		}
	}
	for i := int32(0); i >= 0 && len(e.symbols) > 0; i = e.symbols[i].next {
		e.out = append(e.out, e.symbols[i].id)
	}
}

// start makes one symbol of each byte and offers every neighbouring pair.
func (e *encoder) start(piece string) {
	e.symbols, e.queue = e.symbols[:0], e.queue[:0]
	for i := range len(piece) {
		s := symbol{id: e.m.byteIDs[piece[i]], prev: int32(i) - 1, next: int32(i) + 1}
		e.symbols = append(e.symbols, s)
	}
	if n := len(e.symbols); n > 0 {
		e.symbols[n-1].next = -1
	}
	for i := 1; i < len(e.symbols); i++ {
		e.offer(int32(i)-1, int32(i))
	}
}

// offer queues the pair at left and right where it has a merge.
func (e *encoder) offer(left, right int32) {
	m, ok := e.m.merges[pair{e.symbols[left].id, e.symbols[right].id}]
	if ok {
		e.queue.push(candidate{rank: m.rank, pos: left, id: m.id})
	}
}

// newBPE builds the model of a file's vocabulary and merges.
func newBPE(c *bpeConfig) (*bpe, error) {
	m := &bpe{
		ids:          make(map[string]int32, len(c.Vocab)),
		merges:       make(map[pair]merge, len(c.Merges)),
		ignoreMerges: c.IgnoreMerges,
	}
	for content, id := range c.Vocab {
		if raw, ok := rawBytes(content); ok {
			m.ids[raw] = id
		}
	}
	for b := range 256 {
		id, ok := m.ids[string([]byte{byte(b)})]
		if !ok && inUTF8(byte(b)) {
			return nil, fmt.Errorf("%w: model: vocab lacks %q, the token of byte 0x%02X", ErrUnsupported, charOf[b], b)
		}
		m.byteIDs[b] = id
	}
	for rank, p := range c.Merges {
		if err := m.addMerge(c.Vocab, p, int32(rank)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// addMerge enters one merge. Of two for the same pair the later one counts, as
// in tokenizers.
func (m *bpe) addMerge(vocab map[string]int32, p mergePair, rank int32) error {
	var ids [3]int32
	for i, content := range []string{p[0], p[1], p[0] + p[1]} {
		id, ok := vocab[content]
		if !ok {
			return fmt.Errorf("%w: model: merge %d (%.40q %.40q): vocab lacks %.40q", ErrInvalid, rank, p[0], p[1], content)
		}
		ids[i] = id
	}
	m.merges[pair{ids[0], ids[1]}] = merge{rank: rank, id: ids[2]}
	return nil
}
