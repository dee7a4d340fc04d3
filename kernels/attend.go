package kernels

import (
	"errors"
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/vec"
)

// Attend is causal attention over a row's own sequence: with s_j = q·k_j·Scale for positions
// j = 0 … p, or the last Window of them, out = Σ_j softmax(s)_j v_j. Keys and values are read
// through the block table; query head i reads KV head i/(Heads/KV.Heads).
// (Vaswani et al., 2017; paged as in Kwon et al., 2023; grouped as in Ainslie et al., 2023.)
type Attend struct {
	Q     device.Buffer // float32 [T][Heads*HeadDim], before RoPE if there is a Post
	Rows  Rows
	Slots Slots
	KV    KV
	Out   device.Buffer // out: float32 [T][Heads*HeadDim], unless Handover.Rounded takes the results
	// Workspace is [AttendWorkspaceBytes] bytes, zero at first, that a GPU keeps from one Attend
	// to the next. No two may run at once with the same one. The host needs none.
	Workspace device.Buffer

	T, Layer, Heads int
	Scale           float32 // 1/sqrt(HeadDim)
	Window          int     // positions that a row sees, its own included; 0 is all
	Class           Class   // prefill is for many rows that read the same keys
	// AfterQKV promises two things: the op before this one on its stream is the QKV of the same
	// rows, layer and pool, and each row of the decode class is the only one of its sequence.
	// PDL: the kernels of QKV let this one start when the ops before QKV have ended. QKV
	// writes only Q and the rows' own keys and values; everything else is read while QKV still
	// runs: slots, positions, block table, and in decode the other keys and values. If the
	// promise is false, some of that may be read before it is written.
	AfterQKV bool
	// Post is the post-processing of a QKV with DeferRoPE, or none. It is for the decode class, and
	// each row must be the only one of its sequence. Q is not changed.
	Post     QKPost
	Handover Handover // of the prefill class; InputIsRounded and Norm are unused
}

// On a GPU a row's positions are cut into splits of attendSplit, in prefill of prefillSplit.
// Different blocks process a row's splits if a step has at most AttendSplitRows rows, in prefill
// if the workspace holds their partials.
const (
	AttendSplitRows = 64
	attendSplit     = 128
	prefillSplit    = 1024
)

func splitsOf(context, split int) int { return (context + split - 1) / split }

// AttendWorkspaceBytes returns the size of Attend.Workspace for steps of at most rows rows:
// arrival counters uint32 [AttendSplitRows][heads], then split partials float32
// [rows, at most AttendSplitRows][heads][splits of 128 positions][headDim+2]. Prefill has fewer
// splits, so that the same memory serves more rows.
func AttendWorkspaceBytes(rows, heads, headDim, context int) int64 {
	splits := splitsOf(context, attendSplit)
	partials := int64(min(rows, AttendSplitRows)) * int64(heads) * int64(splits) * int64(headDim+2)
	return 4 * (AttendSplitRows*int64(heads) + partials)
}

// Kernel returns "attend".
func (Attend) Kernel() string { return "attend" }

// Check compares dimensions.
func (o Attend) Check() error {
	if err := o.KV.check(o.Layer); err != nil {
		return err
	}
	if o.Window < 0 {
		return fmt.Errorf("%w: a window of %d positions", device.ErrBadShape, o.Window)
	}
	if !o.Post.IsZero() {
		if o.Class == Prefill {
			return fmt.Errorf("%w: RoPE is deferred in the decode class only", device.ErrBadShape)
		}
		if err := errors.Join(o.post().check(), o.Post.BeforeRoPE.check(o.T, o.KV.Heads, o.KV.HeadDim)); err != nil {
			return err
		}
	}
	n := o.T * o.Heads * o.KV.HeadDim
	return checkBuffers(need{"q", o.Q, n}, need{"out", o.Out, n}, need{"slots of rows", o.Rows.Slot, o.T},
		need{"positions", o.Rows.Position, o.T}, need{"block table", o.Slots.BlockTable, o.Slots.Count * o.Slots.Pages})
}

func (o Attend) post() rowsPost {
	return rowsPost{QKPost: o.Post, rows: o.Rows, slots: o.Slots, kv: o.KV, t: o.T, layer: o.Layer, heads: o.Heads}
}

// Host computes on the host.
func (o Attend) Host(h *device.Host) {
	if o.Post.IsZero() {
		o.host(h, h.Float32(o.Q))
		return
	}
	q := scratchCopy(h, o.Q, o.T*o.Heads*o.KV.HeadDim)
	kv := scratchCopy(h, o.Post.BeforeRoPE.Data, o.T*2*o.KV.Heads*o.KV.HeadDim)
	o.post().host(h, q, kv)
	o.host(h, q)
	h.Return(kv)
	h.Return(q)
}

// scratchCopy returns scratch with the first n elements of b. The caller returns it.
func scratchCopy(h *device.Host, b device.Buffer, n int) []float32 {
	s := h.Scratch(n)
	copy(s, h.Float32(b)[:n])
	return s
}

// tileHeads is how many query heads the host computes at a time over the same keys and values.
const tileHeads = 8

// host attends with q after RoPE. It takes the query heads in the order of their KV heads, so that heads beside each
// other share keys. No result depends on the division into tiles.
func (o Attend) host(h *device.Host, q []float32) {
	positions, work := h.Int32(o.Rows.Position), 0
	for t := range o.T {
		work += (int(positions[t]) + 1) * o.Heads * o.KV.HeadDim * 2
	}
	h.For(o.T*o.Heads, work, func(begin, end int) {
		scores := h.Scratch(tileHeads * o.Slots.Context)
		for begin < end {
			begin += o.attendTile(h, q, begin, min(end, begin+tileHeads), scores)
		}
		h.Return(scores)
	})
}

// hostHead is one query head of one row.
type hostHead struct {
	q, out      []float32 // [HeadDim]
	first, last int       // positions that the row sees; last is excluded
	scores      []float32 // [last-first]
}

// attendTile computes the query heads from begin on that share a KV head and a slot, before end, and returns how many
// they are.
func (o Attend) attendTile(h *device.Host, q []float32, begin, end int, scores []float32) int {
	var all [tileHeads]hostHead
	slots, d, n := h.Int32(o.Rows.Slot), o.KV.HeadDim, 0
	row, head := o.rowAndHead(begin)
	slot, kvHead := slots[row], head/(o.Heads/o.KV.Heads)
	for ; begin+n < end; n++ {
		t, head := o.rowAndHead(begin + n)
		if slots[t] != slot || head/(o.Heads/o.KV.Heads) != kvHead {
			break
		}
		last, at := int(h.Int32(o.Rows.Position)[t])+1, (t*o.Heads+head)*d
		first := o.first(last)
		all[n] = hostHead{q[at:][:d], h.Float32(o.Out)[at:][:d], first, last, scores[n*o.Slots.Context:][:last-first]}
	}
	table := h.Int32(o.Slots.BlockTable)[int(slot)*o.Slots.Pages:][:o.Slots.Pages]
	o.attendHeads(h.Float32(o.KV.Data), table, kvHead, all[:n])
	return n
}

// rowAndHead returns the row and the query head with index i in the order of KV heads, then rows.
func (o Attend) rowAndHead(i int) (row, head int) {
	group := o.Heads / o.KV.Heads
	return i / group % o.T, i/group/o.T*group + i%group
}

// attendHeads computes heads over the keys and values of a KV head.
func (o Attend) attendHeads(pool []float32, table []int32, kvHead int, heads []hostHead) {
	o.overPages(pool, table, 0, kvHead, heads)
	var sums [tileHeads]float32
	for i, head := range heads {
		sums[i] = vec.SoftmaxWeights(head.scores, o.Scale)
		clear(head.out)
	}
	o.overPages(pool, table, 1, kvHead, heads)
	for i, head := range heads {
		inverse := 1 / sums[i]
		for j := range head.out {
			head.out[j] *= inverse
		}
	}
}

// overPages computes the scores of heads from the keys (which is 0), or adds the values (which is 1), weighted by the
// scores, to their results. All heads use a page before the next one.
func (o Attend) overPages(pool []float32, table []int32, which, kvHead int, heads []hostHead) {
	first, last := heads[0].first, 0
	for _, head := range heads {
		first, last = min(first, head.first), max(last, head.last)
	}
	d, page := o.KV.HeadDim, first/o.KV.PageTokens
	for start := page * o.KV.PageTokens; start < last; page, start = page+1, start+o.KV.PageTokens {
		rows := pool[o.KV.at(int(table[page]), o.Layer, which, kvHead):][:o.KV.PageTokens*d]
		for i := range heads {
			head := &heads[i]
			begin, end := max(start, head.first), min(start+o.KV.PageTokens, head.last)
			if begin >= end {
				continue
			}
			scores, rows := head.scores[begin-head.first:end-head.first], rows[(begin-start)*d:(end-start)*d]
			if which == 0 {
				vec.DotRows(scores, head.q, rows)
			} else {
				vec.AddScaledRows(head.out, rows, scores)
			}
		}
	}
}

// first returns the first position that the row at position n-1 sees.
func (o Attend) first(n int) int {
	if o.Window > 0 {
		return max(0, n-o.Window)
	}
	return 0
}
