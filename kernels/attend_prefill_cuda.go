//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// Constants of attention/prefill.cuh.
const (
	prefillQueries    = 64 // of a tile: rows × query heads of one KV head
	minPrefillQueries = 16 // of the smallest tile: those of one warp
	prefillKeys       = 64 // positions that a block loads at once
	prefillWarps      = 4  // of a block
)

// prefillKernels are the kernels by head size, for rows that see all positions and for rows
// that see a window. dim is the head size that the kernel computes with.
var prefillKernels = map[int]struct {
	all, window string
	dim         int
}{
	64:  {"reel_attend_prefill_64", "reel_attend_prefill_64_window", 64},
	96:  {"reel_attend_prefill_96", "reel_attend_prefill_96_window", 96},
	128: {"reel_attend_prefill_128", "reel_attend_prefill_128_window", 128},
	0:   {"reel_attend_prefill_any", "reel_attend_prefill_any_window", 128},
}

// prefillKernel returns the kernel for o's head size and window, and the head size that it
// computes with.
func (o Attend) prefillKernel() (string, int) {
	k, ok := prefillKernels[o.KV.HeadDim]
	if !ok {
		k = prefillKernels[0]
	}
	if o.visible() < o.Slots.Context {
		return k.window, k.dim
	}
	return k.all, k.dim
}

// prefill launches the kernel of the prefill class.
func (o Attend) prefill(q *cuda.Queue) error {
	kernel, dim := o.prefillKernel()
	onHopper := hopper(q)
	g, p := o.prefillGrid(q.SMs(), onHopper)
	args := o.args(q, p.window, p.join, prefillSplits(o.Slots.Context))
	o.setHandover(q, &args)
	args.parts = int32(p.parts)
	args.shareMerge = flag(onHopper && g.Z*p.join > 1 && tune.ShareMerge)
	g.Shared = 2 * 2 * prefillKeys * dim * 2 // two stages of keys and values, 2 bytes an element
	return cuda.Launch(q, kernel, g, args)
}

func flag(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// prefillBlocks returns how many blocks run on an SM at the same time: on Hopper as many as the launch bounds of
// attend_prefill.cu say, else two if there is room.
func (o Attend) prefillBlocks(hopper bool) int {
	if hopper && o.KV.HeadDim == 64 && o.visible() >= o.Slots.Context {
		return 3
	}
	return 2
}

// setHandover redirects the results to o.Handover, if the GPU's products read them there.
func (o Attend) setHandover(q *cuda.Queue, args *attendArgs) {
	cols := o.Heads * o.KV.HeadDim
	if cols%128 != 0 || !canRound(q, o.Handover.Rounded, o.T, cols) {
		return
	}
	r := roundedAt(q.Address(o.Handover.Rounded), o.T, cols)
	args.rounded, args.tokens = r.rows, r.tokens
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
	g = cuda.Grid{X: o.KV.Heads * splitsOf(o.Heads/o.KV.Heads, prefillQueries), Z: 1, Threads: 32 * prefillWarps,
		Dependent: tune.DependentLaunch}
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
	partials := int64(o.T*o.Heads) * int64(splits) * int64(o.KV.HeadDim+2)
	return x*splitsOf(o.T, o.prefillRows(minPrefillQueries)) <= counters &&
		4*(int64(counters)+partials) <= o.Workspace.Bytes()
}

// prefillRows returns how many rows have the given number of queries of a KV head, at least one.
func (o Attend) prefillRows(queries int) int { return max(1, queries/(o.Heads/o.KV.Heads)) }
