package draft

import "math/bits"

const (
	// leastEntries and mostEntries bound the table of a sequence: 4 KiB to 128 KiB.
	leastEntries, mostEntries = 1 << 10, 1 << 15
	// atOnce and atToken are the prompt tokens that are read at the start and then with each token: 5 us, 0.5 us.
	atOnce, atToken = 1 << 11, 1 << 8
	// steady is the number of tokens in a row that were the ones to copy from which on a sequence is copying.
	steady = 2
)

// sight is what a sequence's history says about its next token.
type sight uint8

const (
	unseen  sight = iota // the last three tokens did not occur before
	seen                 // they did
	copying              // they did, and what came after them came again
	sights
)

// history knows which three tokens a sequence has had in a row and what came next, the last time. It is a table by hash
// without chains: a later entry replaces an earlier one.
type history struct {
	table  []uint32 // by hash of three tokens: 16 other bits of it, then 16 bits of the next token's hash; 0: none
	prompt []int32  // what is left to read of the prompt

	last  [3]int32
	count int // tokens in last, 3 at most
	run   int // tokens in a row that the table had foretold
	next  uint32
	found bool
}

// begin starts with the prompt. Its table is as large as the prompt and an answer of equal length.
func (h *history) begin(prompt []int32) {
	entries := min(max(1<<bits.Len(uint(2*len(prompt))), leastEntries), mostEntries)
	if cap(h.table) < entries {
		h.table = make([]uint32, entries)
	}
	h.table = h.table[:entries]
	clear(h.table)
	h.prompt = prompt
	h.read(atOnce)
	for _, id := range prompt[max(0, len(prompt)-3):] {
		h.shift(id)
	}
	h.look()
}

// read puts up to n more tokens of the prompt into the table.
func (h *history) read(n int) {
	p := h.prompt
	for i := 3; i < min(len(p), n+3); i++ {
		at, tag := h.place(p[i-3], p[i-2], p[i-1])
		h.table[at] = tag<<16 | short(p[i])
	}
	if len(p) <= n+3 {
		h.prompt = nil
		return
	}
	h.prompt = p[n:]
}

// add follows a token of the answer.
func (h *history) add(id int32) {
	if h.prompt != nil {
		h.read(atToken)
	}
	if h.found && h.next == short(id) {
		h.run++
	} else {
		h.run = 0
	}
	if h.count == len(h.last) {
		at, tag := h.place(h.last[0], h.last[1], h.last[2])
		h.table[at] = tag<<16 | short(id)
	}
	h.shift(id)
	h.look()
}

func (h *history) shift(id int32) {
	h.last = [3]int32{h.last[1], h.last[2], id}
	h.count = min(h.count+1, len(h.last))
}

// look finds the last three tokens.
func (h *history) look() {
	h.found = false
	if h.count == len(h.last) {
		at, tag := h.place(h.last[0], h.last[1], h.last[2])
		h.next, h.found = h.table[at]&0xffff, h.table[at]>>16 == tag
	}
}

func (h *history) sight() sight {
	switch {
	case !h.found:
		return unseen
	case h.run < steady:
		return seen
	}
	return copying
}

// place returns the entry of three tokens and their tag, which is never 0.
func (h *history) place(a, b, c int32) (at int, tag uint32) {
	x := (uint64(uint32(a))*0x9e3779b97f4a7c15 ^ uint64(uint32(b))) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>29 ^ uint64(uint32(c))) * 0x94d049bb133111eb
	return int(x>>32) & (len(h.table) - 1), uint32(x>>16)&0xffff | 1
}

// short is 16 bits of a token's hash.
func short(id int32) uint32 { return uint32(id) * 0x9e3779b1 >> 16 }
