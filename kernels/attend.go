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

// hostRow is a row with query heads that share a KV head.
type hostRow struct {
	q, out      []float32 // [heads][HeadDim]
	first, last int       // positions that the row sees; last is excluded
	scores      []float32 // [heads][Context], of which the first last-first are used
	sums        [tileHeads]float32
}

// attendTile computes the query heads from begin on that share a KV head and a slot, before end, and returns how many
// they are.
func (o Attend) attendTile(h *device.Host, q []float32, begin, end int, scores []float32) int {
	group, slots := o.Heads/o.KV.Heads, h.Int32(o.Rows.Slot)
	first, head := o.rowAndHead(begin)
	slot, kvHead := slots[first], head/group
	var tile [tileHeads]hostRow
	rows, i := 0, begin
	for i < end {
		t, head := o.rowAndHead(i)
		if slots[t] != slot || head/group != kvHead {
			break
		}
		heads := min(end-i, group-head%group)
		tile[rows] = o.hostRow(h, q, t, head, heads, scores[(i-begin)*o.Slots.Context:])
		rows, i = rows+1, i+heads
	}
	table := h.Int32(o.Slots.BlockTable)[int(slot)*o.Slots.Pages:][:o.Slots.Pages]
	o.attendRows(h.Float32(o.KV.Data), table, kvHead, tile[:rows])
	return i - begin
}

// rowAndHead returns the row and the query head with index i in the order of KV heads, then rows.
func (o Attend) rowAndHead(i int) (row, head int) {
	group := o.Heads / o.KV.Heads
	return i / group % o.T, i/group/o.T*group + i%group
}

// hostRow returns row t with some of its heads.
func (o Attend) hostRow(h *device.Host, q []float32, t, head, heads int, scores []float32) hostRow {
	at, n := (t*o.Heads+head)*o.KV.HeadDim, heads*o.KV.HeadDim
	last := int(h.Int32(o.Rows.Position)[t]) + 1
	return hostRow{q: q[at:][:n], out: h.Float32(o.Out)[at:][:n], first: o.first(last), last: last,
		scores: scores[:heads*o.Slots.Context]}
}

// attendRows computes rows over the keys and values of a KV head.
func (o Attend) attendRows(pool []float32, table []int32, kvHead int, rows []hostRow) {
	o.overPages(pool, table, 0, kvHead, rows)
	d, context := o.KV.HeadDim, o.Slots.Context
	for r := range rows {
		row := &rows[r]
		for i := range len(row.q) / d {
			row.sums[i] = vec.SoftmaxWeights(row.scores[i*context:][:row.last-row.first], o.Scale)
		}
		clear(row.out)
	}
	o.overPages(pool, table, 1, kvHead, rows)
	for r := range rows {
		for i := range len(rows[r].q) / d {
			inverse, out := 1/rows[r].sums[i], rows[r].out[i*d:][:d]
			for j := range out {
				out[j] *= inverse
			}
		}
	}
}

// overPages computes the scores of rows from the keys (which is 0), or adds the values (which is 1), weighted by the
// scores, to their results. All rows use a page before the next one.
func (o Attend) overPages(pool []float32, table []int32, which, kvHead int, rows []hostRow) {
	first, last := rows[0].first, 0
	for i := range rows {
		first, last = min(first, rows[i].first), max(last, rows[i].last)
	}
	d, page := o.KV.HeadDim, first/o.KV.PageTokens
	for start := page * o.KV.PageTokens; start < last; page, start = page+1, start+o.KV.PageTokens {
		data := pool[o.KV.at(int(table[page]), o.Layer, which, kvHead):][:o.KV.PageTokens*d]
		for i := range rows {
			row := &rows[i]
			begin, end := max(start, row.first), min(start+o.KV.PageTokens, row.last)
			if begin >= end {
				continue
			}
			scores, seen := row.scores[begin-row.first:], data[(begin-start)*d:(end-start)*d]
			if which == 0 {
				vec.DotRows(scores, row.q, seen, d, o.Slots.Context)
			} else {
				vec.AddScaledRows(row.out, seen, scores, d, o.Slots.Context)
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
