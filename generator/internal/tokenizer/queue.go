package tokenizer

// candidate is a merge that may still apply: its rank above the place of its
// left symbol, so that the next one is the least.
type candidate uint64

func newCandidate(rank, at int32) candidate { return candidate(rank)<<32 | candidate(at) }

func (c candidate) split() (rank, at int32) { return int32(c >> 32), int32(uint32(c)) }

// queue is a heap of candidates, the next one first, in which each has up to
// four children: half as deep as with two, and those of one lie side by side.
// container/heap would allocate for every candidate.
type queue []candidate

func (q *queue) push(c candidate) {
	*q = append(*q, c)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 4
		if h[i] >= h[parent] {
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
	for i := 0; 4*i+1 < len(q); {
		least := 4*i + 1
		for child := least + 1; child < min(4*i+5, len(q)); child++ {
			if q[child] < q[least] {
				least = child
			}
		}
		if q[least] >= q[i] {
			return
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}
