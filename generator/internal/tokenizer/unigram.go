package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// unigram is a Unigram model: each token has a log-probability, and a piece becomes the tokens
// with the largest sum. (Kudo, "Subword Regularization", 2018.)
type unigram struct {
	ids      map[string]int32 // by content
	scores   []float64        // by id
	trie     trie
	unk      int32      // stands for runs of characters without a token
	unkScore float64    // of one such character
	byteIDs  [256]int32 // with byte_fallback, the tokens for the bytes of such runs; -1: none
}

// unkPenalty is the difference between the score of an unknown character and the least score of
// the vocabulary, as in SentencePiece.
const unkPenalty = 10

// unigramConfig is a model of type Unigram.
type unigramConfig struct {
	Type         string        `json:"type"`
	UnkID        *int32        `json:"unk_id"`
	Vocab        []scoredToken `json:"vocab"`
	ByteFallback bool          `json:"byte_fallback"`
}

// scoredToken is a token and its score, in JSON a list of the two.
type scoredToken struct {
	content string
	score   float64
}

func (s *scoredToken) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("vocab: %.60s has %d parts, want a token and its score", data, len(parts))
	}
	return errors.Join(json.Unmarshal(parts[0], &s.content), json.Unmarshal(parts[1], &s.score))
}

// vocab returns the ids of the tokens. It refuses a token that occurs twice.
func (c *unigramConfig) vocab() (map[string]int32, error) {
	if len(c.Vocab) > maxVocab {
		return nil, fmt.Errorf("%w: vocab has %d tokens, at most %d are allowed", ErrInvalid, len(c.Vocab), maxVocab)
	}
	ids := make(map[string]int32, len(c.Vocab))
	for id, t := range c.Vocab {
		if old, ok := ids[t.content]; ok {
			return nil, fmt.Errorf("%w: vocab: token %.40q has the ids %d and %d", ErrInvalid, t.content, old, id)
		}
		ids[t.content] = int32(id)
	}
	return ids, nil
}

// check refuses a model without a token for unknown characters.
func (c *unigramConfig) check() error {
	switch {
	case c.UnkID == nil:
		return fmt.Errorf("%w: Unigram without unk_id", ErrUnsupported)
	case *c.UnkID < 0 || int(*c.UnkID) >= len(c.Vocab):
		return fmt.Errorf("%w: unk_id %d of %d tokens", ErrInvalid, *c.UnkID, len(c.Vocab))
	}
	return nil
}

// newUnigram builds a model from the vocabulary of a file; ids are its ids. The model never makes
// a control token. Only the tokens of bytes and the unknown token stay, whatever they are.
func newUnigram(c *unigramConfig, ids map[string]int32, control func(int32) bool) *unigram {
	m := &unigram{ids: ids, unk: *c.UnkID, unkScore: math.Inf(1), trie: newTrie()}
	for id, t := range c.Vocab {
		m.scores = append(m.scores, t.score)
		m.unkScore = min(m.unkScore, t.score)
		if !control(int32(id)) {
			m.trie.add(t.content, int32(id))
		}
	}
	m.unkScore -= unkPenalty
	for b := range m.byteIDs {
		m.byteIDs[b] = -1
		if id, ok := ids[byteContent(byte(b))]; ok && c.ByteFallback {
			m.byteIDs[b] = id
		}
	}
	maps.DeleteFunc(ids, func(_ string, id int32) bool { return control(id) })
	return m
}

// step is the best way to the end of a part of a piece: its score, and its last token, which
// begins at from.
type step struct {
	score float64
	from  int32 // -1: no way is known
	id    int32
}

// encodeUnigram appends the ids of one piece. It copies the ids of a piece seen before.
func (e *encoder) encodeUnigram(piece string) {
	if s, ok := e.seen[piece]; ok {
		e.out = append(e.out, e.out[s.from:s.to]...)
		return
	}
	from := len(e.out)
	for _, t := range e.unigram.best(e, piece) {
		e.out = e.unigram.appendToken(e.out, t)
	}
	e.seen[piece] = span{from, len(e.out)}
	e.pacer.spent(200)
}

// best returns the tokens of a piece with the largest sum of scores, by Viterbi's algorithm. Of
// equal sums the one found first wins, as in tokenizers. Neighbouring unknown characters are
// joined into one.
func (m *unigram) best(e *encoder, piece string) []string {
	e.steps = slices.Grow(e.steps[:0], len(piece)+1)[:len(piece)+1]
	for i := range e.steps {
		e.steps[i] = step{from: -1}
	}
	for at := 0; at < len(piece); {
		_, size := utf8.DecodeRuneInString(piece[at:])
		m.extend(e, piece, at, size)
		at += size
	}
	var tokens []string
	end := len(piece)
	for end > 0 {
		e.pacer.spent(10)
		from := int(e.steps[end].from)
		for unknown := e.steps[end].id == m.unk; unknown && from > 0 && e.steps[from].id == m.unk; {
			from = int(e.steps[from].from)
		}
		tokens = append(tokens, piece[from:end])
		end = from
	}
	slices.Reverse(tokens)
	return tokens
}

// extend offers each token that begins at a character of size bytes, or the unknown token if
// no token is that character alone.
func (m *unigram) extend(e *encoder, piece string, at, size int) {
	till, single := e.steps[at].score, false
	node := int32(0)
	for end := at; end < len(piece); {
		var ok bool
		if node, ok = m.trie.next(node, piece[end]); !ok {
			break
		}
		end++
		e.pacer.spent(15)
		if id := m.trie.ids[node]; id >= 0 {
			e.steps[end].offer(m.scores[id]+till, at, id)
			single = single || end-at == size
		}
	}
	if !single {
		e.steps[at+size].offer(m.unkScore+till, at, m.unk)
	}
}

func (s *step) offer(score float64, from int, id int32) {
	if s.from < 0 || score > s.score {
		*s = step{score, int32(from), id}
	}
}

// appendToken appends the id of a token's content, or those of its bytes, or the unknown token.
func (m *unigram) appendToken(out []int32, content string) []int32 {
	if id, ok := m.ids[content]; ok {
		return append(out, id)
	}
	for i := range len(content) {
		if m.byteIDs[content[i]] < 0 {
			return append(out, m.unk)
		}
	}
	for i := range len(content) {
		out = append(out, m.byteIDs[content[i]])
	}
	return out
}

// trie finds the tokens that a text begins with. Node 0 is the root.
type trie struct {
	edges map[uint64]int32 // by node in the high bits and byte in the low 8
	ids   []int32          // by node; -1: no token ends there
}

func newTrie() trie { return trie{map[uint64]int32{}, []int32{-1}} }

func (t *trie) next(node int32, b byte) (int32, bool) {
	next, ok := t.edges[uint64(node)<<8|uint64(b)]
	return next, ok
}

func (t *trie) add(content string, id int32) {
	node := int32(0)
	for i := range len(content) {
		next, ok := t.next(node, content[i])
		if !ok {
			next = int32(len(t.ids))
			t.ids = append(t.ids, -1)
			t.edges[uint64(node)<<8|uint64(content[i])] = next
		}
		node = next
	}
	t.ids[node] = id
}
