package tokenizer

import (
	"fmt"
	"maps"
	"slices"
)

// bpe is a BPE model, over bytes or over characters.
// (Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", 2016.)
type bpe struct {
	ids          map[string]int32 // over bytes, by the bytes of a token; over characters, by its content
	byteIDs      [256]int32       // by byte; over characters, for the bytes of characters without a token; -1: none
	unk          int32            // over bytes, stands for bytes without a token; -1: they are left out, as by SmolLM2
	fuseUnk      bool             // neighbouring bytes without a token become one unk
	characters   bool
	wordStart    string // begins each word; see wordStart. "" if a piece cannot be cut into words
	merges       map[pair]merge
	ignoreMerges bool // a piece that is a token gets its id without merges
}

// pair is the ids of two neighbours, the left one in the high half. Go's maps are fastest
// with integer keys.
type pair uint64

func pairOf(left, right int32) pair { return pair(uint32(left))<<32 | pair(uint32(right)) }

// merge is the result of merging a pair. Lower ranks are merged first.
type merge struct{ rank, id int32 }

// noMerge is the rank of a pair without a merge.
const noMerge = -1

// encoder appends ids to out, one piece of text after another. It serves one call of Encode.
type encoder struct {
	model
	pacer   *pacer
	out     []int32
	seen    map[string]span // words encoded so far, and their ids in out
	symbols []symbol        // of a word; for bpe
	queue   queue
	steps   []step // of a piece, by the offset of its end; for unigram
}

type span struct{ from, to int }

// symbol is a node in the doubly linked list of a word's present symbols.
type symbol struct {
	id         int32
	prev, next int32 // -1 at the ends
	merge      merge // with the next symbol; noMerge after the symbol was merged into prev
}

func (t *Tokenizer) encoder(p *pacer, prefix []int32, textBytes int) *encoder {
	out := make([]int32, 0, len(prefix)+textBytes/3+8)
	return &encoder{model: t.model, pacer: p, out: append(out, prefix...), seen: map[string]span{}}
}

// encoding returns the function that appends the ids of one piece.
func (e *encoder) encoding() func(piece string) {
	switch {
	case e.unigram != nil:
		return e.encodeUnigram
	case e.wordPiece != nil:
		return e.encodeWordPiece
	}
	return e.encode
}

// encode appends the ids of one piece, word by word.
func (e *encoder) encode(piece string) {
	for {
		n := e.bpe.word(e.pacer, piece)
		e.encodeWord(piece[:n])
		e.pacer.spent(100)
		if piece = piece[n:]; piece == "" {
			return
		}
	}
}

// encodeWord appends the ids of a word. It copies the ids of a word seen before.
func (e *encoder) encodeWord(piece string) {
	if s, ok := e.seen[piece]; ok {
		e.out = append(e.out, e.out[s.from:s.to]...)
		return
	}
	from := len(e.out)
	if id, ok := e.bpe.ids[piece]; ok && e.bpe.ignoreMerges {
		e.out = append(e.out, id)
	} else {
		e.merge(piece)
	}
	e.seen[piece] = span{from, len(e.out)}
}

// merge applies merges to piece until none applies: the lowest rank first, and of equal
// ranks the leftmost. With a heap of candidates this takes n log n time.
func (e *encoder) merge(piece string) {
	e.start(piece)
	for n := uint(1); len(e.queue) > 0; n++ {
		if n%block == 0 {
			e.pacer.spent(block * 100)
		}
		rank, at := e.queue.pop().split()
		left := &e.symbols[at]
		if left.merge.rank != rank {
			continue // a stale candidate: one of its symbols was merged
		}
		right := &e.symbols[left.next]
		left.id, left.next, right.merge.rank = left.merge.id, right.next, noMerge
		if left.next >= 0 {
			e.symbols[left.next].prev = at
		}
		e.offer(at)
		if left.prev >= 0 {
			e.offer(left.prev)
		}
	}
	e.drain()
}

// drain appends the ids of the remaining symbols.
func (e *encoder) drain() {
	n := uint(1)
	for i := int32(0); i >= 0 && len(e.symbols) > 0; i = e.symbols[i].next {
		e.out = append(e.out, e.symbols[i].id)
		if n++; n%block == 0 {
			e.pacer.spent(block * 5)
		}
	}
}

// start makes a symbol of each byte or character and offers each pair of neighbours.
func (e *encoder) start(piece string) {
	e.symbols, e.queue = slices.Grow(e.symbols[:0], len(piece)), slices.Grow(e.queue[:0], len(piece))
	if e.bpe.characters {
		e.startCharacters(piece)
	} else {
		e.startBytes(piece)
	}
	if n := len(e.symbols); n > 0 {
		e.symbols[n-1].next = -1
	}
	for i := range e.symbols {
		e.offer(int32(i))
		if uint(i)%block == block-1 {
			e.pacer.spent(block * 20)
		}
	}
}

// startBytes adds a symbol for each byte.
func (e *encoder) startBytes(piece string) {
	fused := false
	for i := range len(piece) {
		if uint(i)%block == block-1 {
			e.pacer.spent(block * 20) // includes clearing fresh memory
		}
		id := e.bpe.byteIDs[piece[i]]
		if id < 0 {
			if e.bpe.unk >= 0 && !fused {
				e.add(e.bpe.unk)
			}
			fused = e.bpe.fuseUnk
			continue
		}
		fused = false
		e.add(id)
	}
}

// add appends a symbol.
func (e *encoder) add(id int32) {
	at := int32(len(e.symbols))
	e.symbols = append(e.symbols, symbol{id: id, prev: at - 1, next: at + 1})
}

// offer queues the merge of the symbol at an index with the next one, if they have one.
func (e *encoder) offer(at int32) {
	s := &e.symbols[at]
	s.merge.rank = noMerge
	if s.next < 0 {
		return
	}
	if m, ok := e.bpe.merges[pairOf(s.id, e.symbols[s.next].id)]; ok {
		s.merge = m
		e.queue.push(newCandidate(m.rank, at))
	}
}

// newBPE builds a model from the vocabulary and the merges of a file. The model never makes a
// control token, but stops at the parts that would merge to one. Only the tokens of single bytes
// and the unknown token stay, whatever they are.
func newBPE(c *bpeConfig, control func(int32) bool) (*bpe, error) {
	m := &bpe{merges: make(map[pair]merge, len(c.Merges)), characters: c.ByteFallback, ignoreMerges: c.IgnoreMerges,
		unk: -1, fuseUnk: c.FuseUnk}
	if id, ok := c.Vocab[c.unkToken()]; ok {
		m.unk = id
	}
	byteToken := byteContent
	if m.characters {
		m.ids = c.Vocab
	} else {
		m.ids, byteToken = byBytes(c.Vocab), func(b byte) string { return string([]byte{b}) }
	}
	for b := range 256 {
		id, ok := m.ids[byteToken(byte(b))]
		if !ok {
			id = -1
		}
		if !ok && inUTF8(byte(b)) && (m.characters || c.unkToken() != "" && m.unk < 0) {
			return nil, fmt.Errorf("%w: model: vocab lacks a token for the byte 0x%02X", ErrUnsupported, b)
		}
		m.byteIDs[b] = id
	}
	for rank, p := range c.Merges {
		if err := m.addMerge(c.Vocab, p, int32(rank), control); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(m.ids, func(_ string, id int32) bool { return control(id) })
	if m.characters {
		m.wordStart = wordStart(c)
	}
	return m, nil
}

// unkToken returns unk_token, or "".
func (c *bpeConfig) unkToken() string {
	if c.UnkToken == nil {
		return ""
	}
	return *c.UnkToken
}

// byBytes returns the ids of a byte-level vocabulary, keyed by the bytes of the tokens.
func byBytes(vocab map[string]int32) map[string]int32 {
	ids := make(map[string]int32, len(vocab))
	for content, id := range vocab {
		if raw, ok := rawBytes(content); ok {
			ids[raw] = id
		}
	}
	return ids
}

// addMerge adds one merge, unless it makes a control token. A later merge of the same pair
// replaces it, as in tokenizers.
func (m *bpe) addMerge(vocab map[string]int32, p mergePair, rank int32, control func(int32) bool) error {
	var ids [3]int32
	for i, content := range []string{p[0], p[1], p[0] + p[1]} {
		id, ok := vocab[content]
		if !ok {
			return fmt.Errorf("%w: model: merge %d (%.40q %.40q): vocab lacks %.40q",
				ErrInvalid, rank, p[0], p[1], content)
		}
		ids[i] = id
	}
	if !control(ids[2]) {
		m.merges[pairOf(ids[0], ids[1])] = merge{rank: rank, id: ids[2]}
	}
	return nil
}
