//go:build cuda

package kernels

import (
	"strconv"

	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// Constants of attention/prefill.cuh.
const (
	prefillQueries    = 64  // of a tile: rows × query heads of one KV head
	minPrefillQueries = 16  // of the smallest tile: those of one warp
	prefillKeys       = 64  // positions that a block loads at once
	prefillWarps      = 4   // of a block
	prefillValues     = 128 // elements of a value that a block adds up
)

// prefillKernel is a kernel of prefill. dim is the head size that it computes with, and not that of the heads in the
// kernels for any size.
type prefillKernel struct {
	name string
	dim  int
}

// prefillKernels are the kernels by head size: 0 for other sizes up to prefillValues, -1 for those beyond.
// They are for rows that see all positions, which has no -1, for rows that see a window, and for scores with a softcap
// or sinks.
type prefillKernels map[int]prefillKernel

// prefillWide is the largest head.
const prefillWide = 2 * prefillValues

var (
	prefillAll    = prefillKernelsOf("", 64, 96, 128, 256)
	prefillWindow = prefillKernelsOf("_window", 64, 96, 128, 256)
	prefillLogits = prefillKernelsOf("_logits", 64, 128, 256)
)

// prefillKernelsOf returns the kernels with a suffix, of which some are for heads of these sizes.
func prefillKernelsOf(suffix string, sizes ...int) prefillKernels {
	name := func(size string) string { return "reel_attend_prefill_" + size + suffix }
	k := prefillKernels{0: {name("any"), prefillValues}, -1: {name("wide"), prefillWide}}
	for _, dim := range sizes {
		k[dim] = prefillKernel{name(strconv.Itoa(dim)), dim}
	}
	return k
}

// of returns the kernel for heads of dim.
func (k prefillKernels) of(dim int) prefillKernel {
	if exact, ok := k[dim]; ok {
		return exact
	}
	if dim > prefillValues {
		return k[-1]
	}
	return k[0]
}

// prefillKernel returns the kernel for o's head size, window and scores.
func (o Attend) prefillKernel() prefillKernel {
	switch {
	case o.hasLogits():
		return prefillLogits.of(o.KV.HeadDim)
	case o.visible() < o.Slots.Context || o.KV.HeadDim > prefillValues && o.KV.HeadDim < prefillWide:
		return prefillWindow.of(o.KV.HeadDim)
	}
	return prefillAll.of(o.KV.HeadDim)
}

// prefill launches the kernel of the prefill class.
func (o Attend) prefill(q *cuda.Queue) error {
	kernel := o.prefillKernel()
	onHopper := hopper(q)
	if onHopper && o.prefillsLong(q.SMs()) {
		return o.prefillLong(q, kernel)
	}
	g, p := o.prefillGrid(q.SMs(), onHopper)
	args := o.args(q, p.window, p.join, prefillSplits(o.Slots.Context))
	o.setHandover(q, &args)
	args.parts = int32(p.parts)
	args.shareMerge = flag(onHopper && g.Z*p.join > 1 && tune.ShareMerge)
	// Two stages of keys and values, 2 bytes an element.
	g.Shared = 2 * prefillKeys * (kernel.dim + min(kernel.dim, prefillValues)) * 2
	g.AllShared = kernel.dim > prefillValues // blocks that merge together must all run at the same time
	if o.hasLogits() {
		return cuda.Launch(q, kernel.name, g, attendLogitsArgs[attendArgs]{args, o.logits(q)})
	}
	return cuda.Launch(q, kernel.name, g, args)
}

// prefillLongQueries are the queries of a tile of the kernels for many rows on Hopper (attention/prefill_long.cuh).
const prefillLongQueries = 128

// prefillLongRows are the rows from which on such a kernel takes less time behind other positions, by a third, and hardly
// more without any (notes/prefill_attention.md).
const prefillLongRows = 160

// prefillsLong reports whether o has enough rows for such a kernel, each of whose blocks needs an SM, and whether there
// is one: for heads of 64 and 128 whose rows see all positions.
func (o Attend) prefillsLong(sms int) bool {
	dim := o.KV.HeadDim
	if dim != 64 && dim != 128 || o.hasLogits() || o.visible() < o.Slots.Context {
		return false
	}
	if tune.PrefillQueries != 0 {
		return tune.PrefillQueries == prefillLongQueries
	}
	blocks := o.KV.Heads * splitsOf(o.Heads/o.KV.Heads, prefillQueries) * splitsOf(o.T, o.prefillRows(prefillLongQueries))
	return o.T >= prefillLongRows || blocks >= sms
}

// prefillLong launches it.
func (o Attend) prefillLong(q *cuda.Queue, kernel prefillKernel) error {
	rows := o.prefillRows(prefillLongQueries)
	g := cuda.Grid{X: o.KV.Heads * splitsOf(o.Heads/o.KV.Heads, prefillQueries), Y: splitsOf(o.T, rows), Z: 1,
		Threads: 2*prefillLongQueries + 32*prefillWarps, Dependent: tune.DependentLaunch,
		Shared: prefillLongShared(kernel.dim)}
	args := o.args(q, rows, 1, prefillSplits(o.Slots.Context))
	o.setHandover(q, &args)
	args.parts = 1
	return cuda.Launch(q, kernel.name+"_long", g, args)
}

// prefillLongShared returns BYTES of PrefillLong, the shared memory of a block: stages of two blocks of keys and of one block of
// values, the sums of earlier splits, and a pair of barriers for each stage.
func prefillLongShared(dim int) int {
	const keyStages, valueStages = 2, 6
	return (2*keyStages+valueStages)*prefillKeys*dim*2 + prefillLongQueries*dim*4 + (keyStages+valueStages)*16
}

// prefillHalves returns how many blocks share the values of a head.
func (o Attend) prefillHalves() int { return splitsOf(o.KV.HeadDim, prefillValues) }

func flag(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// prefillBlocks returns how many blocks run on an SM at the same time: on Hopper as many as the launch bounds of
// attend_prefill.cu say, else two if there is room.
func (o Attend) prefillBlocks(hopper bool) int {
	if hopper && o.KV.HeadDim == 64 && o.visible() >= o.Slots.Context && !o.hasLogits() {
		return 3
	}
	return 2
}

// setHandover has the results go to o.Handover, if the GPU's products read them there. Those of many rows over quantised
// weights do not.
func (o Attend) setHandover(q *cuda.Queue, args *attendArgs) {
	if o.Handover.DType.Quantised() {
		return
	}
	part := o.Heads * o.KV.HeadDim
	cols := part * max(1, o.Handover.Ranks)
	rows := max(o.T, o.within.rows)
	if cols%128 != 0 || !canRound(q, o.Handover.Rounded, rows, cols) {
		return
	}
	r := roundedAt(q.Address(o.Handover.Rounded), rows, cols)
	args.rounded, args.tokens = r.rows+uint64(o.within.first*2*kBlockCols), r.tokens
	if o.Handover.Ranks > 1 {
		args.rounded += uint64(q.Rank()*part*2) * uint64(r.tokens)
	}
	if o.Handover.DType == F16 {
		args.f16 = 1
	}
}

// prefillPlan is how the blocks of a grid divide the rows: tiles of window rows, of which join share their splits if
// the context is long, by at most parts blocks.
type prefillPlan struct{ window, join, parts int }

// prefillGrid returns the grid of the prefill class. Each tile and KV head has a block, and tiles are as small as lets
// all blocks run at the same time. If the workspace is large enough, the blocks of joined tiles together compute the
// splits of their rows in parallel. No result depends on the grid.
func (o Attend) prefillGrid(sms int, hopper bool) (g cuda.Grid, p prefillPlan) {
	g = cuda.Grid{X: o.KV.Heads * splitsOf(o.Heads/o.KV.Heads, prefillQueries) * o.prefillHalves(), Z: 1,
		Threads: 32 * prefillWarps, Dependent: tune.DependentLaunch}
	p = prefillPlan{o.prefillRows(prefillQueries), 1, 1}
	splits := prefillSplits(o.Slots.Context)
	if !tune.ParallelSplits || !o.prefillFits(g.X, splits) {
		g.Y = splitsOf(o.T, p.window)
		return g, p
	}
	for _, queries := range []int{minPrefillQueries, 32} {
		rows := o.prefillRows(queries)
		if queries == tune.PrefillQueries || tune.PrefillQueries == 0 && g.X*splitsOf(o.T, rows) <= 2*sms {
			p.window, p.join = rows, p.window/rows
			break
		}
	}
	g.Y = splitsOf(o.T, p.window)
	g.Z = max(1, min(splits, 2*sms/(g.X*g.Y)))
	p.parts = g.Z * p.join
	if g.Y <= p.join {
		// All rows are of one joined tile, so its parts need not be a multiple of the number of tiles.
		p.parts = max(1, min(splits, o.prefillBlocks(hopper)*sms/g.X))
		g.Z = splitsOf(p.parts, g.Y)
	}
	return g, p
}

// prefillFits reports whether the workspace holds the partials of all rows' splits, and arrival
// counters for x blocks of each of the smallest tiles.
func (o Attend) prefillFits(x, splits int) bool {
	counters := AttendSplitRows * o.Heads
	partials := int64(o.T*o.Heads) * int64(splits) * int64(o.KV.HeadDim+2*o.prefillHalves())
	return x*splitsOf(o.T, o.prefillRows(minPrefillQueries)) <= counters &&
		attendCounterBytes(o.Heads)+4*partials <= o.Workspace.Bytes()
}

// prefillRows returns how many rows have the given number of queries of a KV head, at least one.
func (o Attend) prefillRows(queries int) int { return max(1, queries/(o.Heads/o.KV.Heads)) }
