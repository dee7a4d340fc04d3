//go:build cuda

package kernels

import (
	"fmt"
	"math"
	"math/bits"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// Constants of attention/splits.cuh.
const (
	attendQueries = 8 // entries of a block at most: query heads that share a KV head, of one row or of a group
	attendWarps   = 4 // warps of a split
)

// rowBlocks returns the blocks of decode attention that a row, or a group of a verify pass, has at least: one for so many
// entries of each KV head, or several.
func rowBlocks(kvHeads, entries int) int { return kvHeads * splitsOf(entries, attendQueries) }

// attendKernels are the decode kernels of a head size. The blocks of two process two splits at once; logits are for
// scores with a softcap or sinks, and logitsTwo are for both.
type attendKernels struct {
	one, two, logits, logitsTwo attendNames
}

// attendNames are kernels of the same work: plain, with deferred RoPE, of a verify pass, and from a position on.
// Those that also exchange, those of tagged values, and those that hand over to products over quantised weights are for
// some head sizes.
type attendNames struct {
	plain, deferred, verify, from, plainSpread, deferredSpread, tagged, taggedRanks string
	plainCodes, deferredCodes, verifyCodes                                          string
}

// attendBySize are the decode kernels by head size, rounded up to a multiple of 32. They are
// made once, so that a launch allocates nothing.
var attendBySize = [...]attendKernels{attendKernelsOf(32, 64), attendKernelsOf(64, 64), attendKernelsOf(96, 128),
	attendKernelsOf(128, 128), attendKernelsOf(256, 256), attendKernelsOf(256, 256), attendKernelsOf(256, 256),
	attendKernelsOf(256, 256)}

// attendKernelsOf returns the kernels for heads of dim, and for those with a softcap or sinks of up to logits.
func attendKernelsOf(dim, logits int) attendKernels {
	one, of := fmt.Sprintf("reel_attend_%d", dim), fmt.Sprintf("reel_attend_%d_logits", logits)
	return attendKernels{attendNamesOf(one), attendNamesOf(one + "_two"), attendNamesOf(of), attendNamesOf(of + "_two")}
}

func attendNamesOf(name string) attendNames {
	return attendNames{name, name + "_deferred", name + "_verify", name + "_from", name + "_spread",
		name + "_deferred_spread", name + "_tagged", name + "_tagged_ranks", name + "_codes", name + "_deferred_codes",
		name + "_verify_codes"}
}

// of returns the kernels whose blocks process so many splits at once, or those for scores with a softcap or sinks.
func (k *attendKernels) of(splits int, logits bool) *attendNames {
	switch {
	case logits && splits == 2:
		return &k.logitsTwo
	case logits:
		return &k.logits
	case splits == 2:
		return &k.two
	}
	return &k.one
}

// attendTwoAtMost is the largest head for which a block may process two splits at once, attendTwoLogits that of scores
// with a softcap or sinks.
const attendTwoAtMost, attendTwoLogits = 128, 64

// takesTwo reports whether there is a kernel for o whose blocks process two splits at once.
func (o Attend) takesTwo() bool {
	if o.hasLogits() {
		return o.KV.HeadDim <= attendTwoLogits && (o.T == 1 || !o.Handover.DType.Quantised())
	}
	return o.KV.HeadDim <= attendTwoAtMost
}

// CUDA launches the kernel of o's class, and the exchange of its results: in one kernel where there is one.
func (o Attend) CUDA(q *cuda.Queue) error {
	if err := o.launch(q); err != nil || o.Spread.IsZero() || o.spreads() || o.Tags.areUsed(q) {
		return err
	}
	return o.Spread.CUDA(q)
}

// launchSpread launches that kernel: it has blocks beside those of o's grid, which receive what others send, unless the
// next op takes that.
func (o Attend) launchSpread(q *cuda.Queue, names *attendNames, g cuda.Grid, args attendArgs) error {
	if !o.Spread.taken {
		g.Y++
	}
	to := o.Spread.to(q, 0, o.T)
	if o.Post.IsZero() {
		return cuda.Launch(q, names.plainSpread, g, attendSpreadArgs[attendArgs]{args, to})
	}
	return cuda.Launch(q, names.deferredSpread, g,
		attendSpreadArgs[attendDeferredArgs]{attendDeferredArgs{args, o.post().args(q, o.Q)}, to})
}

// launch launches the kernel of o's class.
func (o Attend) launch(q *cuda.Queue) error {
	if o.KV.Values > 0 {
		return o.latent(q)
	}
	if WideHeads(o.KV.HeadDim) {
		return o.wide(q)
	}
	if err := o.checkCUDA(); err != nil {
		return err
	}
	if o.Generated > 0 {
		return o.mixed(q)
	}
	if o.Class == Prefill {
		return o.prefill(q)
	}
	g, splits, together := o.grid(q.SMs(), hopper(q) && tune.ShareMerge)
	kernels := &attendBySize[(o.KV.HeadDim-1)/32]
	args := o.args(q, o.groupRows(), 1, splitsOf(o.Slots.Context, attendSplitOf(o.KV.HeadDim)))
	args.shareMerge = flag(together)
	if o.T > skinny8.tokens { // fewer rows are read as float32
		o.setHandover(q, &args)
	}
	names := kernels.of(splits, o.hasLogits())
	to := o.codesHandover(q)
	switch {
	case to.rows != 0:
		return o.launchHanding(q, names, g, args, to)
	case o.isMany(q):
		return o.launchMany(q, args)
	case o.hasLogits():
		return o.launchLogits(q, names, g, args)
	}
	return o.launchDecode(q, names, g, args)
}

// mixed launches a kernel for the generated rows of a mixed pass, and one for the rows of prompts.
func (o Attend) mixed(q *cuda.Queue) error {
	if o.Generated%8 != 0 || !o.Spread.IsZero() {
		return fmt.Errorf("%w: attention of %d generated rows in a mixed pass", device.ErrBadShape, o.Generated)
	}
	generated, prompts := o.generatedRows(), o.promptRows()
	if prompts.prefillsLong(q.SMs()) && generated.isMany(q) {
		// Many rows of prompts have few blocks, limited by arithmetic; generated rows are limited by reading. The former
		// leave the workspace alone: their kernel has its sums in shared memory.
		if err := prompts.launch(q); err != nil {
			return err
		}
		return generated.besidePrompts().launch(q)
	}
	if err := generated.launch(q); err != nil {
		return err
	}
	return prompts.launch(q)
}

// launchDecode launches one of the kernels for scores without softcap and sinks.
func (o Attend) launchDecode(q *cuda.Queue, names *attendNames, g cuda.Grid, args attendArgs) error {
	switch {
	case o.Tags.areUsed(q) && o.Tags.Ranks > 0:
		deferred := attendDeferredArgs{args, o.rowsPost(o.TagsPost).args(q, o.Q)}
		return cuda.Launch(q, names.taggedRanks, g,
			attendRankArgs{deferred, o.Tags.rankArgs(q, o.Heads*o.KV.HeadDim/2)})
	case o.Tags.areUsed(q):
		return cuda.Launch(q, names.tagged, g, o.taggedArgs(q, args))
	case o.spreads():
		return o.launchSpread(q, names, g, args)
	case o.First > 0:
		return cuda.Launch(q, names.from, g, attendFromArgs{attend: args, earliest: int32(o.First)})
	case o.Queries > 1:
		return cuda.Launch(q, names.verify, g, args)
	case o.Post.IsZero():
		return cuda.Launch(q, names.plain, g, args)
	}
	return cuda.Launch(q, names.deferred, g, attendDeferredArgs{args, o.post().args(q, o.Q)})
}

// launchLogits launches one of the kernels for scores with a softcap or sinks.
func (o Attend) launchLogits(q *cuda.Queue, names *attendNames, g cuda.Grid, args attendArgs) error {
	logits := o.logits(q)
	switch {
	case o.Tags.areUsed(q):
		return cuda.Launch(q, names.tagged, g, attendLogitsArgs[attendTaggedArgs]{o.taggedArgs(q, args), logits})
	case o.Queries > 1:
		return cuda.Launch(q, names.verify, g, attendLogitsArgs[attendArgs]{args, logits})
	case o.Post.IsZero():
		return cuda.Launch(q, names.plain, g, attendLogitsArgs[attendArgs]{args, logits})
	}
	deferred := attendDeferredArgs{args, o.post().args(q, o.Q)}
	return cuda.Launch(q, names.deferred, g, attendLogitsArgs[attendDeferredArgs]{deferred, logits})
}

// taggedArgs returns the arguments of a kernel whose values are tagged.
func (o Attend) taggedArgs(q *cuda.Queue, args attendArgs) attendTaggedArgs {
	return attendTaggedArgs{attendDeferredArgs{args, o.rowsPost(o.TagsPost).args(q, o.Q)}, o.Tags.args(q)}
}

// logits returns the arguments of softcap and sinks.
func (o Attend) logits(q *cuda.Queue) (l attendLogits) {
	if !o.Sinks.IsZero() {
		l.sinks = q.Address(o.Sinks)
	}
	if o.Softcap > 0 {
		l.cap, l.steep = o.Softcap*float32(math.Log2E), 2*o.Scale/o.Softcap*float32(math.Log2E)
	}
	return l
}

// groupRows returns how many rows of the decode class belong to one sequence.
func (o Attend) groupRows() int { return max(1, o.Queries) }

// args returns the arguments of a kernel. In prefill a tile has window rows, in a verify pass a group has, and join
// tiles share the splits of their rows. splits is how many the context has.
func (o Attend) args(q *cuda.Queue, window, join, splits int) attendArgs {
	workspace, afterQKV := q.Address(o.Workspace), int32(0)
	layer, layers := o.KV.units(o.Layer)
	if o.AfterQKV {
		afterQKV = 1
	}
	return attendArgs{
		q: q.Address(o.Q), pool: q.Address(o.KV.Data), out: q.Address(o.Out),
		arrived: workspace, partial: workspace + uint64(attendCounterBytes(o.Heads)),
		slot: q.Address(o.Rows.Slot), position: q.Address(o.Rows.Position), blockTable: q.Address(o.Slots.BlockTable),
		t: int32(o.T), layer: int32(layer), layers: int32(layers),
		heads: int32(o.Heads), kvHeads: int32(o.KV.Heads), group: int32(o.Heads / o.KV.Heads), dim: int32(o.KV.HeadDim),
		pages: int32(o.Slots.Pages), pageShift: int32(bits.TrailingZeros(uint(o.KV.PageTokens))),
		splits: int32(splits), scale: o.Scale * float32(math.Log2E),
		window: int32(window), join: int32(join), visible: int32(o.visible()), afterQKV: afterQKV, beside: flag(o.within.beside),
	}
}

// grid returns the grid of the decode class, how many splits a block processes at once, one or two, and whether blocks
// of wide heads merge their splits together, if they can. Each row, or group of a verify pass, and KV head has a block for
// its entries, or several; if that leaves SMs idle, it has as many as fit. No result depends on the grid.
//
// Blocks that merge together wait for each other, so all must run at the same time: there are no more than SMs. Two on an
// SM may have no room, whatever shared memory the kernel asks for: an SM gets more only when nothing runs on it, and the
// first block, which runs there, waits for the second.
func (o Attend) grid(sms int, canTogether bool) (g cuda.Grid, splits int, together bool) {
	entries := o.Heads / o.KV.Heads * o.groupRows()
	g = cuda.Grid{X: o.T / o.groupRows(), Y: rowBlocks(o.KV.Heads, entries), Z: 1, Dependent: true}
	wide := o.KV.HeadDim > attendTwoAtMost
	together = wide && canTogether && 2*g.X*g.Y <= sms
	fit := sms // blocks that run at the same time
	if splits = 2; g.X*g.Y > fit || !o.takesTwo() {
		splits = 1
		if !together {
			fit *= 2
		}
	}
	g.Threads = 32 * attendWarps * splits
	if o.T <= AttendSplitRows {
		g.Z = max(1, min(splitsOf(o.Slots.Context, attendSplitOf(o.KV.HeadDim)*splits), fit/(g.X*g.Y)))
	}
	// For each entry and element: two float32 sums per warp, and the AttendSum of earlier splits.
	g.Shared = 4 * (2*attendWarps*splits + 3) * min(entries, attendQueries) * attendWide(o.KV.HeadDim)
	if wide {
		// More shared memory would be L1 of the products beside them, which have loads of weights in flight there.
		g.AtOnce = min(2, splitsOf(g.X*g.Y*g.Z, sms))
	}
	return g, splits, together && g.Z > 1
}

// attendWide returns the elements of a head's sums in shared memory: those of the kernel that heads of dim have.
func attendWide(dim int) int {
	if dim > attendTwoAtMost {
		return 32 * len(attendBySize)
	}
	return (dim + 63) / 64 * 64
}

// visible returns how many positions a row sees at most, its own included.
func (o Attend) visible() int {
	if o.Window > 0 {
		return min(o.Window, math.MaxInt32)
	}
	return math.MaxInt32
}

// checkCUDA refuses dimensions that the kernels do not support.
func (o Attend) checkCUDA() error {
	page, d := o.KV.PageTokens, o.KV.HeadDim
	if o.KV.DType != BF16 || d%8 != 0 || d > 32*len(attendBySize) || page&(page-1) != 0 || page > attendSplit ||
		o.Heads%o.KV.Heads != 0 {
		return fmt.Errorf("%w: attention on a GPU over pages of %d tokens, %d heads over %d of size %d, KV type %d",
			device.ErrBadShape, page, o.Heads, o.KV.Heads, d, o.KV.DType)
	}
	if err := o.KV.checkUnits(o.Layer); err != nil {
		return err
	}
	if o.hasLogits() && o.First > 0 {
		return fmt.Errorf("%w: attention on a GPU from position %d on with a softcap or sinks", device.ErrBadShape, o.First)
	}
	if !o.Post.IsZero() && d%32 != 0 {
		return fmt.Errorf("%w: attention on a GPU with deferred RoPE of heads of %d, no multiple of 32",
			device.ErrBadShape, d)
	}
	if heads := o.KV.Data.Bytes() / int64(2*d); heads > math.MaxUint32 {
		return fmt.Errorf("%w: attention on a GPU over a pool of %d keys and values, which it counts in 32 bits",
			device.ErrBadShape, heads)
	}
	return o.checkWorkspace(AttendWorkspaceBytes(o.T, o.Heads, d, o.Slots.Context))
}

// checkWorkspace refuses a workspace of fewer bytes.
func (o Attend) checkWorkspace(want int64) error {
	if o.Workspace.Bytes() < want {
		return fmt.Errorf("%w: attention has a workspace of %d bytes, wants %d", device.ErrBadShape,
			o.Workspace.Bytes(), want)
	}
	return nil
}
