package tokenizer

// candidate is a merge that may still apply at pos.
type candidate struct{ rank, pos, id int32 }

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

// queue is a binary heap of candidates, the next one first. container/heap
// would allocate for every candidate.
type queue []candidate

func (q *queue) push(c candidate) {
	*q = append(*q, c)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (q *queue) pop() candidate {
	h := *q
	top, last := h[0], len(h)-1
	h[0] = h[last]
	*q = h[:last]
	h[:last].sink()
	return top
}

// sink restores the order after the first element was replaced.
func (q queue) sink() {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(q) {
			return
		}
		if child+1 < len(q) && q[child+1].before(q[child]) {
			child++
		}
		if !q[child].before(q[i]) {
			return
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
}
