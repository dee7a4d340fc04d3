package tokenizer

// candidate is a merge that may still apply. Its rank is in the high half and the index of its
// left symbol in the low half, so the next merge is the least candidate.
type candidate uint64

func newCandidate(rank, at int32) candidate { return candidate(rank)<<32 | candidate(at) }

func (c candidate) split() (rank, at int32) { return int32(c >> 32), int32(uint32(c)) }

// queue is a 4-ary min-heap of candidates. It is half as deep as a binary heap, and the
// children of a node are neighbours in memory. container/heap would allocate for each
// candidate.
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

// sink restores the heap order after the first element was replaced.
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
