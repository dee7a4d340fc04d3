package kernels

import (
	"errors"
	"fmt"
	"math"

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

// Host computes on the host, one row and KV head at a time.
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

// host attends with q after RoPE.
func (o Attend) host(h *device.Host, q []float32) {
	positions, work := h.Int32(o.Rows.Position), 0
	for t := range o.T {
		work += (int(positions[t]) + 1) * o.Heads * o.KV.HeadDim * 2
	}
	h.For(o.T*o.Heads, work, func(begin, end int) {
		scores := h.Scratch(o.Slots.Context)
		for i := begin; i < end; i++ {
			o.attendHead(h, q, i/o.Heads, i%o.Heads, int(positions[i/o.Heads])+1, scores)
		}
		h.Return(scores)
	})
}

// attendHead computes one query head of row t over n positions.
func (o Attend) attendHead(h *device.Host, q []float32, t, head, n int, scores []float32) {
	d, group := o.KV.HeadDim, o.Heads/o.KV.Heads
	at := (t*o.Heads + head) * d
	q, out, pool := q[at:at+d], h.Float32(o.Out)[at:at+d], h.Float32(o.KV.Data)
	slot := int(h.Int32(o.Rows.Slot)[t])
	table := h.Int32(o.Slots.BlockTable)[slot*o.Slots.Pages:][:o.Slots.Pages]
	most := float32(math.Inf(-1))
	first := o.first(n)
	for j := first; j < n; {
		keys := o.rest(pool, table, j, n, 0, head/group)
		of := scores[j:][:len(keys)/d]
		vec.DotRows(of, q, keys)
		for i := range of {
			of[i] *= o.Scale
			most = max(most, of[i])
		}
		j += len(of)
	}
	sum := softmaxWeights(scores[first:n], most)
	for j := first; j < n; j++ {
		scores[j] /= sum
	}
	clear(out)
	for j := first; j < n; {
		values := o.rest(pool, table, j, n, 1, head/group)
		vec.AddScaledRows(out, values, scores[j:][:len(values)/d])
		j += len(values) / d
	}
}

// rest returns the keys (which is 0) or values (which is 1) from position j to the end of its page, or to n.
func (o Attend) rest(pool []float32, table []int32, j, n, which, kvHead int) []float32 {
	page := j / o.KV.PageTokens
	at := o.KV.at(int(table[page]), o.Layer, which, kvHead) + (j-page*o.KV.PageTokens)*o.KV.HeadDim
	return pool[at:][:(min(n, (page+1)*o.KV.PageTokens)-j)*o.KV.HeadDim]
}

// first returns the first position that the row at position n-1 sees.
func (o Attend) first(n int) int {
	if o.Window > 0 {
		return max(0, n-o.Window)
	}
	return 0
}

// softmaxWeights replaces each score by exp(score-most) and returns their sum.
func softmaxWeights(scores []float32, most float32) float32 {
	var sum float32
	for j, s := range scores {
		e := float32(math.Exp(float64(s - most)))
		scores[j] = e
		sum += e
	}
	return sum
}
