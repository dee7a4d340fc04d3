package kernels

import (
	"errors"
	"fmt"
	"math"

	"reel/kernels/device"
	"reel/kernels/vec"
)

// Attend is causal attention over a row's own sequence: with s_j = q·k_j·Scale
// for positions j = 0 … p, or the last Window of them, out = Σ_j softmax(s)_j v_j. Keys and values are read
// through the block table; query head i reads KV head i/(Heads/KV.Heads).
// (Vaswani et al., 2017; paged as in Kwon et al., 2023; grouped as in Ainslie et al., 2023.)
type Attend struct {
	Q     device.Buffer // float32 [T][Heads*HeadDim], turned unless there is a Turn
	Rows  Rows
	Slots Slots
	KV    KV
	Out   device.Buffer // out: float32 [T][Heads*HeadDim]
	// Work is AttendWork bytes, zero at first, that a GPU keeps from one Attend to
	// the next. No two may run at once with the same. The host needs none.
	Workspace device.Buffer

	T, Layer, Heads int
	Scale           float32 // 1/sqrt(HeadDim)
	Window          int     // how many positions a row sees, its own included; 0 is all
	Class           Class
	// AfterQKV promises that the op before this one on its stream is the QKV of the same
	// rows, layer and pool, and that each generated row is the only one of its sequence. Of
	// what is read here that op writes Q and the rows' own keys and values alone, and on a
	// GPU its kernels let this one begin when the ops before it have ended. So what those
	// wrote is read while QKV still runs: slots, positions, block table, and of generated
	// rows the other keys and values. Where the promise is false, some of it is what was there
	// before.
	AfterQKV bool
	// Turn is that of the QKV before, which left its rows Unturned; or none. It comes first,
	// for generated rows, each the only one of its sequence, and leaves Q as it is.
	Post     QKPost
	Handover Handover // of the prefill class
}

// A GPU cuts a row's positions into splits of attendSplit, in prefill of prefillSplit,
// for blocks of their own where a step has at most AttendSplitRows rows, in prefill
// as many as there is memory for.
const (
	attendSplit     = 128
	AttendSplitRows = 64
	prefillSplit    = 1024
	// workSplit is what Work has place for: as many splits as decode has, which is more than
	// prefill has, and so as many rows of prefill as gain by it.
	workSplit = 128
)

func splitsOf(context, split int) int { return (context + split - 1) / split }

// AttendWork is how many bytes of Attend.Work steps of at most rows rows take:
// counters uint32 [AttendSplitRows][heads], then place for sums, float32
// [AttendSplitRows at most][heads][splits of workSplit][headDim+2].
func AttendWorkspaceBytes(rows, heads, headDim, context int) int64 {
	sums := int64(min(rows, AttendSplitRows)) * int64(heads) * int64(splitsOf(context, workSplit)) * int64(headDim+2)
	return 4 * (AttendSplitRows*int64(heads) + sums)
}

// Kernel is "attend".
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
			return fmt.Errorf("%w: a prompt's rows are turned by their QKV", device.ErrBadShape)
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
	q, kv := hostCopy(h, o.Q, o.T*o.Heads*o.KV.HeadDim), hostCopy(h, o.Post.BeforeRoPE.Data, o.T*2*o.KV.Heads*o.KV.HeadDim)
	o.post().host(h, q, kv)
	o.host(h, q)
	h.Return(kv)
	h.Return(q)
}

// scratchOf is scratch that holds the first n elements of b.
func hostCopy(h *device.Host, b device.Buffer, n int) []float32 {
	s := h.Scratch(n)
	copy(s, h.Float32(b)[:n])
	return s
}

// host attends with the turned q.
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
	for j := first; j < n; j++ {
		k := pool[o.KV.at(int(table[j/o.KV.PageTokens]), o.Layer, 0, head/group)+j%o.KV.PageTokens*d:][:d]
		scores[j] = vec.Dot(q, k) * o.Scale
		most = max(most, scores[j])
	}
	sum := softmaxWeights(scores[first:n], most)
	clear(out)
	for j := first; j < n; j++ {
		v := pool[o.KV.at(int(table[j/o.KV.PageTokens]), o.Layer, 1, head/group)+j%o.KV.PageTokens*d:][:d]
		vec.AddScaled(out, v, scores[j]/sum)
	}
}

// first is the first position that the row at position n-1 sees.
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
