package draft

import "math/bits"

const (
	// leastEntries and mostEntries bound the table of a sequence: 2 KiB to 64 KiB.
	leastEntries, mostEntries = 1 << 10, 1 << 15
	// atOnce and atToken are the prompt tokens that are read at the start and then with each token: 5 us, 0.5 us.
	atOnce, atToken = 1 << 11, 1 << 8
	// match is the number of tokens in a row that count as a match.
	match = 3
)

// sight is what a sequence's history says about its next token.
type sight uint8

const (
	unseen sight = iota // the last three tokens did not occur before
	seen                // they did, so there is something to copy
	sights
)

// history knows which three tokens a sequence has had in a row. It is a table by hash without chains: a later entry
// replaces an earlier one.
type history struct {
	table  []uint16 // by hash of three tokens: other bits of it; 0: none
	prompt []int32  // what is left to read of the prompt
	last   [match]int32
	count  int // tokens in last
	sight  sight
	begun  bool
}

// begin starts with the prompt, when it is called first: a request that waits needs no table. The table has room for
// the prompt and an answer of equal length, within the bounds.
func (h *history) begin() {
	if h.begun {
		return
	}
	h.begun = true
	prompt := h.prompt
	entries := min(max(1<<bits.Len(uint(2*len(prompt))), leastEntries), mostEntries)
	if cap(h.table) < entries {
		h.table = make([]uint16, entries)
	}
	h.table = h.table[:entries]
	clear(h.table)
	for _, id := range prompt[max(0, len(prompt)-match):] {
		h.shift(id)
	}
	h.prompt = prompt[:max(0, len(prompt)-1)] // without the last match, which is looked for
	h.read(atOnce)
	h.look()
}

// read puts the next n tokens of the prompt into the table.
func (h *history) read(n int) {
	p := h.prompt
	for i := match; i <= min(len(p), n+match-1); i++ {
		at, tag := h.place(p[i-3], p[i-2], p[i-1])
		h.table[at] = tag
	}
	h.prompt = p[min(n, len(p)):]
}

// add follows a token of the answer.
func (h *history) add(id int32) {
	if len(h.prompt) > 0 {
		h.read(atToken)
	}
	h.shift(id)
	h.look()
}

func (h *history) shift(id int32) {
	h.last = [match]int32{h.last[1], h.last[2], id}
	h.count = min(h.count+1, match)
}

// look finds the last three tokens, and has later ones find them.
func (h *history) look() {
	h.sight = unseen
	if h.count < match {
		return
	}
	at, tag := h.place(h.last[0], h.last[1], h.last[2])
	if h.table[at] == tag {
		h.sight = seen
	}
	h.table[at] = tag
}

// place returns the entry of three tokens and their tag, which is never 0.
func (h *history) place(a, b, c int32) (at int, tag uint16) {
	x := (uint64(uint32(a))*0x9e3779b97f4a7c15 ^ uint64(uint32(b))) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>29 ^ uint64(uint32(c))) * 0x94d049bb133111eb
	return int(x>>32) & (len(h.table) - 1), uint16(x>>16) | 1
}
