package kernels

import (
	"errors"
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
)

// Attend is causal attention over a row's own sequence: with s_j = q·k_j·Scale for positions
// j = 0 … p, or the last Window of them, out = Σ_j softmax(s)_j v_j. Keys and values are read
// through the block table; query head i reads KV head i/(Heads/KV.Heads).
// With Softcap, s_j = Softcap·tanh(q·k_j·Scale/Softcap). With Sinks, head h has one more logit, Sinks[h], in the
// softmax's sum: out = Σ_j exp(s_j) v_j / (exp(Sinks[h]) + Σ_j exp(s_j)).
// (Vaswani et al., 2017; paged as in Kwon et al., 2023; grouped as in Ainslie et al., 2023; softcap as in Gemma 2,
// 2024; sinks as in gpt-oss, 2025.)
type Attend struct {
	Q     device.Buffer // float32 [T][Heads*HeadDim], before RoPE if there is a Post
	Rows  Rows
	Slots Slots
	KV    KV
	// Out is float32 [T][Heads*HeadDim], or with KV.Values [T][Heads*Values], unless Handover.Rounded takes the results.
	Out device.Buffer
	// Workspace is [AttendWorkspaceBytes] or [LatentWorkspaceBytes] bytes, zero at first, that a GPU keeps from one Attend
	// to the next. No two may run at once with the same one. The host needs none.
	Workspace device.Buffer

	T, Layer, Heads int
	Scale           float32 // multiplies the scores, mostly 1/sqrt(HeadDim)
	Softcap         float32 // bounds the scores; 0 is no bound
	// Sinks is float32 [Heads], or none: a logit of each query head that takes part in the softmax like the score of one
	// more key, and has no value. Neither Scale nor Softcap changes it.
	Sinks  device.Buffer
	Window int // positions that a row sees, its own included; 0 is all
	First  int // the first position that a row sees; in the decode class, without Queries or Post
	// Queries, if it is more than 1, says that rows come in groups of so many of one sequence, as [Accept] describes: a
	// verify pass, of the decode class. T is a multiple of it. A GPU then reads the keys and values of a group once.
	// Post is for other passes.
	Queries int
	Class   Class // prefill is for many rows that read the same keys
	// Generated are rows of a mixed pass. Each is the only one of its sequence.
	Generated Generated
	// AfterQKV promises two things: the op before this one on its stream is the QKV of the same
	// rows, layer and pool, and each row of the decode class, or group of Queries, is the only one of its sequence.
	// PDL: the kernels of QKV let this one start when the ops before QKV have ended. QKV
	// writes only Q and the rows' own keys and values; everything else is read while QKV still
	// runs: slots, positions, block table, and in decode the keys and values before the rows. If the
	// promise is false, some of that may be read before it is written.
	// With KV.Values the op before is a HeadProduct that writes Q, and the op before that the LatentQKV.
	AfterQKV bool
	// Post is the post-processing of a QKV with DeferRoPE, or none. It is for the decode class, and
	// each row must be the only one of its sequence. A GPU may leave processed queries in Q.
	Post     QKPost
	Handover Handover // InputIsRounded and Norm are unused
	// Spread is the exchange that gives Out, this rank's heads, to all ranks; or none. Out may then be left as it is.
	Spread Exchange
	// Tags are those of a pass whose values are tagged: of q, k and v as products compute them, and of results in pairs.
	// TagsPost is the post-processing of q, k and v then; Q and Post are for other devices. Without Softcap, First and
	// Queries, and on several GPUs without Sinks.
	Tags     Tags
	TagsPost QKPost

	within rowsOfMixed
}

// rowsOfMixed says which of the rows of a mixed pass an op has: those from first on, a multiple of 8, of so many. The
// zero value is an op with all rows of its pass. beside: the kernel before is that of the pass's other rows, and both run
// at the same time.
type rowsOfMixed struct {
	first, rows int
	beside      bool
}

// generatedRows returns the op of the decode class over a mixed pass's generated rows.
func (o Attend) generatedRows() Attend {
	o.within, o.T, o.Class, o.Generated = rowsOfMixed{rows: o.T}, int(o.Generated), Decode, 0
	return o
}

// besidePrompts returns o, of generated rows, to be launched after the op over the prompts' rows, and to run beside it.
func (o Attend) besidePrompts() Attend {
	o.within.beside, o.AfterQKV = true, false
	return o
}

// promptRows returns the op over the rows of prompts after them.
func (o Attend) promptRows() Attend {
	first := int(o.Generated)
	from := func(b device.Buffer, bytes int) device.Buffer {
		if b.IsZero() {
			return b
		}
		return b.Slice(int64(first*bytes), b.Bytes()-int64(first*bytes))
	}
	o.Q, o.Out = from(o.Q, 4*o.Heads*o.KV.HeadDim), from(o.Out, 4*o.Heads*o.KV.HeadDim)
	o.Rows.Slot, o.Rows.Position = from(o.Rows.Slot, 4), from(o.Rows.Position, 4)
	o.within, o.T, o.Generated, o.AfterQKV = rowsOfMixed{first: first, rows: o.T}, o.T-first, 0, false
	return o
}

// On a GPU a row's positions are cut into splits of attendSplit, or half of it for heads larger than 128; in prefill of
// shortSplit up to shortSplits of them, and of longSplit beyond. Different blocks process a row's splits if a step has
// at most AttendSplitRows rows, in prefill if the workspace holds their partials.
const (
	AttendSplitRows = 64
	attendSplit     = 128
	shortSplit      = 512
	shortSplits     = 8
	longSplit       = 1024
)

// attendSplitOf returns the positions of a split outside prefill.
func attendSplitOf(headDim int) int {
	if headDim > 128 {
		return attendSplit / 2
	}
	return attendSplit
}

// narrowHeads is the largest head of attention's kernels but those of latents.
const narrowHeads = 256

// WideHeads reports whether heads are so wide that attention over latents computes them on a GPU, with the values beside
// the keys. It takes and leaves rows of float32, and has no deferred RoPE.
func WideHeads(headDim int) bool { return headDim > narrowHeads }

func splitsOf(context, split int) int { return (context + split - 1) / split }

// prefillSplits returns the number of splits of context positions in prefill.
func prefillSplits(context int) int {
	if context <= shortSplits*shortSplit {
		return splitsOf(context, shortSplit)
	}
	return shortSplits + splitsOf(context-shortSplits*shortSplit, longSplit)
}

// AttendWorkspaceBytes returns the size of Attend.Workspace for steps of at most rows rows:
// arrival counters uint32 [AttendSplitRows][heads], 16 bytes for one of all rows, then split partials float32
// [rows, at most AttendSplitRows][heads][splits][headDim+2], of 128 positions or of 64. Prefill has fewer
// splits, so that the same memory serves more rows. Of wide heads it is [LatentWorkspaceBytes].
func AttendWorkspaceBytes(rows, heads, headDim, context int) int64 {
	if WideHeads(headDim) {
		return LatentWorkspaceBytes(rows, heads, headDim, context)
	}
	return workspaceBytes(rows, heads, splitsOf(context, attendSplitOf(headDim)), headDim)
}

// workspaceBytes returns the size of Attend.Workspace for partials of so many splits and values.
func workspaceBytes(rows, heads, splits, values int) int64 {
	partials := int64(min(rows, AttendSplitRows)) * int64(heads) * int64(splits) * int64(values+2)
	return attendCounterBytes(heads) + 4*partials
}

// attendCounterBytes returns the size of the counters before the partials.
func attendCounterBytes(heads int) int64 { return 4*AttendSplitRows*int64(heads) + 16 }

// On a GPU the positions of a generated row over latents are cut into splits of latentShortSplit up to latentShort of
// them, and of latentLongSplit beyond: constants of attend_latent.cu.
const (
	latentShort      = 4096
	latentShortSplit = 64
	latentLongSplit  = 128
)

// latentSplits returns the number of splits of context positions outside prefill.
func latentSplits(context int) int {
	return splitsOf(min(context, latentShort), latentShortSplit) + splitsOf(max(0, context-latentShort), latentLongSplit)
}

// LatentWorkspaceBytes returns the size of Attend.Workspace for steps of at most rows rows over keys that hold their
// values: as [AttendWorkspaceBytes], with partials float32 [rows, at most AttendSplitRows][heads][splits][values+2].
func LatentWorkspaceBytes(rows, heads, values, context int) int64 {
	return workspaceBytes(rows, heads, latentSplits(context), values)
}

// Kernel returns "attend".
func (Attend) Kernel() string { return "attend" }

// Check compares dimensions.
func (o Attend) Check() error {
	if err := o.KV.check(o.Layer); err != nil {
		return err
	}
	if err := errors.Join(o.Generated.check(o.Class, o.T), o.Spread.checkSpread(o.Out, o.T, o.Heads*o.KV.HeadDim)); err != nil {
		return err
	}
	if o.Window < 0 {
		return fmt.Errorf("%w: a window of %d positions", device.ErrBadShape, o.Window)
	}
	if !(o.Softcap >= 0 && o.Softcap <= math.MaxFloat32) {
		return fmt.Errorf("%w: a softcap of %v", device.ErrBadShape, o.Softcap)
	}
	if !o.Sinks.IsZero() && o.Sinks.Bytes() != 4*int64(o.Heads) {
		return fmt.Errorf("%w: sinks of %d bytes for %d heads", device.ErrBadShape, o.Sinks.Bytes(), o.Heads)
	}
	if o.First < 0 || o.First > 0 && (o.Class == Prefill || o.Queries > 1 || !o.Post.IsZero()) {
		return fmt.Errorf("%w: attention from position %d on", device.ErrBadShape, o.First)
	}
	if o.Queries > 1 && (o.Class == Prefill || o.T%o.Queries != 0 || !o.Post.IsZero()) {
		return fmt.Errorf("%w: attention over %d rows in groups of %d that is not a verify pass's", device.ErrBadShape,
			o.T, o.Queries)
	}
	if !o.Post.IsZero() {
		if o.Class == Prefill {
			return fmt.Errorf("%w: RoPE is deferred in the decode class only", device.ErrBadShape)
		}
		if err := errors.Join(o.post().check(), o.Post.BeforeRoPE.check(o.T, o.KV.Heads, o.KV.HeadDim)); err != nil {
			return err
		}
	}
	if o.KV.Values > 0 && !(o.Post.IsZero() && o.Handover.Rounded.IsZero()) {
		return fmt.Errorf("%w: deferred RoPE of keys that hold their values, or rounded results", device.ErrBadShape)
	}
	if err := errors.Join(o.checkTags(), o.checkCodes()); err != nil {
		return err
	}
	rows := o.T * o.Heads
	return checkBuffers(need{"q", o.Q, rows * o.KV.HeadDim}, need{"out", o.Out, rows * o.KV.valueDim()}, need{"slots of rows", o.Rows.Slot, o.T},
		need{"positions", o.Rows.Position, o.T}, need{"block table", o.Slots.BlockTable, o.Slots.Count * o.Slots.Pages})
}

func (o Attend) checkTags() error {
	if o.Tags.Pass.IsZero() {
		return nil
	}
	if o.Class == Prefill || o.Queries > 1 || o.First > 0 || o.Softcap > 0 || !o.AfterQKV ||
		o.Tags.Ranks > 0 && !o.Sinks.IsZero() ||
		!CanTagHeads(o.KV.HeadDim, o.KV.DType, !o.Sinks.IsZero()) {
		return fmt.Errorf("%w: attention with tagged values of heads of %d", device.ErrBadShape, o.KV.HeadDim)
	}
	d := o.KV.HeadDim
	return errors.Join(o.rowsPost(o.TagsPost).check(), o.Tags.checkSpread(o.Spread),
		o.Tags.check(o.T, (o.Heads+2*o.KV.Heads)*d, max(1, o.Tags.Ranks)*o.Heads*d/2))
}

func (o Attend) post() rowsPost { return o.rowsPost(o.Post) }

func (o Attend) rowsPost(post QKPost) rowsPost {
	return rowsPost{QKPost: post, rows: o.Rows, slots: o.Slots, kv: o.KV, t: o.T, layer: o.Layer, heads: o.Heads}
}

// Host computes on the host.
func (o Attend) Host(h *device.Host) {
	defer o.Spread.spread(h)
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

// spreads reports whether there is a kernel that also exchanges: for the head sizes of large models, in decode passes.
func (o Attend) spreads() bool {
	size := (o.KV.HeadDim + 31) / 32
	return !o.Spread.IsZero() && o.Class == Decode && (size == 2 || size == 4) && o.Queries <= 1 && o.First == 0 &&
		!o.hasLogits() && o.KV.Values == 0 && o.Spread.fits()
}

// Sends reports whether the next op may take the results of one row as they come: whether there is a kernel that sends.
func (o Attend) Sends() bool { return o.T == 1 && o.spreads() }

// hasLogits reports whether there is a softcap, or sinks.
func (o Attend) hasLogits() bool { return o.Softcap > 0 || !o.Sinks.IsZero() }
