package kernels

import (
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// tileHeads is how many query heads of a KV head the host computes at a time, in whole rows.
const tileHeads = 16

// host attends with q after RoPE, in tiles. No result depends on the division into tiles.
func (o Attend) host(h *device.Host, q []float32) {
	rows := max(1, tileHeads*o.KV.Heads/o.Heads)
	tiles := (o.T + rows - 1) / rows // of a KV head
	h.For(tiles*o.KV.Heads, o.work(h), func(begin, end int) {
		t := o.newTile(h, rows)
		for i := begin; i < end; i++ {
			first := i % tiles * rows
			t.attend(q, i/tiles, first, min(o.T, first+rows))
		}
		h.Return(t.scratch)
	})
}

// work returns the number of multiply-adds.
func (o Attend) work(h *device.Host) (n int) {
	for _, p := range h.Int32(o.Rows.Position)[:o.T] {
		n += (int(p) + 1) * o.Heads * o.KV.HeadDim * 2
	}
	return n
}

// attendTile is some rows of a slot with the query heads that share a KV head. They all use a page of keys or values
// before the next one.
type attendTile struct {
	Attend
	h             *device.Host
	scratch       []float32
	q, out        []float32 // [rows][group][HeadDim]
	scores        []float32 // [rows][group][stride], from the first position that a row sees; then their weights
	sums          []float32 // of weights, [rows][group]
	stride, group int
	kvHead        int
	table         []int32    // the slot's pages
	rows          []rowRange // the positions that each row sees
	any, all      rowRange   // the positions that some row sees, and those that all see
}

// rowRange is the positions from first up to last, which is excluded.
type rowRange struct{ first, last int }

// scorePadding keeps the scores of a tile's heads apart in a cache, whose sets repeat after a power of two.
const scorePadding = 16

// newTile returns a tile for at most so many rows. The caller returns its scratch.
func (o Attend) newTile(h *device.Host, rows int) *attendTile {
	t := &attendTile{Attend: o, h: h, group: o.Heads / o.KV.Heads, stride: o.Slots.Context + scorePadding,
		rows: make([]rowRange, 0, rows)}
	heads := rows * t.group
	values := heads * o.KV.HeadDim
	t.scratch = h.Scratch(2*values + heads*(t.stride+1))
	t.q, t.out, t.sums, t.scores = t.scratch[:values], t.scratch[values:2*values],
		t.scratch[2*values:2*values+heads], t.scratch[2*values+heads:]
	return t
}

// attend computes the rows from begin up to end, which is excluded, for the heads of a KV head.
func (t *attendTile) attend(q []float32, kvHead, begin, end int) {
	t.kvHead = kvHead
	for slots := t.h.Int32(t.Rows.Slot); begin < end; begin += len(t.rows) {
		n := 1
		for begin+n < end && slots[begin+n] == slots[begin] {
			n++
		}
		t.table = t.h.Int32(t.Slots.BlockTable)[int(slots[begin])*t.Slots.Pages:][:t.Slots.Pages]
		t.take(q, begin, n)
		t.overPages(0)
		t.softmax()
		clear(t.out[:n*t.group*t.KV.HeadDim])
		t.overPages(1)
		t.give(begin)
	}
}

// take sets n rows from begin on, and copies their queries.
func (t *attendTile) take(q []float32, begin, n int) {
	t.rows = t.rows[:0]
	values := t.group * t.KV.HeadDim
	for row := begin; row < begin+n; row++ {
		last := int(t.h.Int32(t.Rows.Position)[row]) + 1
		sees := rowRange{t.first(last), last}
		if t.rows = append(t.rows, sees); row == begin {
			t.any, t.all = sees, sees
		}
		t.any = rowRange{min(t.any.first, sees.first), max(t.any.last, last)}
		t.all = rowRange{max(t.all.first, sees.first), min(t.all.last, last)}
		copy(t.q[(row-begin)*values:][:values], q[(row*t.KV.Heads+t.kvHead)*values:])
	}
}

// overPages computes the scores of the rows from the keys (which is 0), or adds the values (which is 1), weighted by
// the scores, to their results.
func (t *attendTile) overPages(which int) {
	d, size := t.KV.HeadDim, t.KV.PageTokens
	pool := t.h.Float32(t.KV.Data)
	for page := t.any.first / size; page*size < t.any.last; page++ {
		at := rowRange{page * size, (page + 1) * size}
		data := pool[t.KV.at(int(t.table[page]), t.Layer, which, t.kvHead):][:size*d]
		if t.all.first <= at.first && at.last <= t.all.last {
			t.overKeys(which, 0, len(t.rows), at.first, data)
			continue
		}
		for i, sees := range t.rows {
			if first, last := max(at.first, sees.first), min(at.last, sees.last); first < last {
				t.overKeys(which, i, i+1, first, data[(first-at.first)*d:(last-at.first)*d])
			}
		}
	}
}

// overKeys is overPages for the rows from begin up to end and neighbouring keys or values, the first at a position.
func (t *attendTile) overKeys(which, begin, end, position int, data []float32) {
	d := t.KV.HeadDim
	begin, end = begin*t.group, end*t.group
	scores := t.scores[begin*t.stride+position-t.any.first:]
	if which == 0 {
		vec.DotRows(scores, t.q[begin*d:end*d], data, d, t.stride)
	} else {
		vec.AddScaledRows(t.out[begin*d:end*d], data, scores, d, t.stride)
	}
}

// softmax replaces the scores by weights, and sets their sums.
func (t *attendTile) softmax() {
	for i, sees := range t.rows {
		for head := range t.group {
			scores := t.scores[(i*t.group+head)*t.stride:][sees.first-t.any.first : sees.last-t.any.first]
			t.sums[i*t.group+head] = t.weights(scores, t.kvHead*t.group+head)
		}
	}
}

// weights replaces the scores of a query head by weights, and returns their sum. The place behind the scores belongs
// to the head too, and no value is multiplied by what it holds: a sink is a score there.
func (t *attendTile) weights(scores []float32, head int) float32 {
	scale := t.Scale
	if t.Softcap > 0 {
		vec.Softcap(scores, scale, t.Softcap)
		scale = 1
	}
	if t.Sinks.IsZero() {
		return vec.SoftmaxWeights(scores, scale)
	}
	for i := range scores {
		scores[i] *= scale
	}
	scores = append(scores, t.h.Float32(t.Sinks)[head])
	return vec.SoftmaxWeights(scores, 1)
}

// give writes the results of the rows, which begin at a row, divided by the sums of the weights. Of rows that are keys
// and values in one, the results past the values are left out.
func (t *attendTile) give(begin int) {
	d, values := t.KV.HeadDim, t.KV.valueDim()
	for i := range len(t.rows) * t.group {
		row, head := begin+i/t.group, t.kvHead*t.group+i%t.group
		inverse, out := 1/t.sums[i], t.h.Float32(t.Out)[(row*t.Heads+head)*values:][:values]
		for j, v := range t.out[i*d:][:values] {
			out[j] = v * inverse
		}
	}
}

// first returns the first position that the row at position n-1 sees.
func (o Attend) first(n int) int {
	if o.Window > 0 {
		return max(o.First, n-o.Window)
	}
	return o.First
}
