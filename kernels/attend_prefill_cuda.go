//go:build cuda

package kernels

import (
	"reel/kernels/device/cuda"
	"reel/kernels/internal/tune"
)

// Constants of attend_prefill.cu: queries of a tile, and of a warp's part
// of it, keys of a block, warps of a block of threads.
const (
	prefillQueries    = 64
	minPrefillQueries = 16
	prefillKeys       = 64
	prefillWarps      = 4
)

// prefillKernels are the kernels by head size, with the size that each computes with:
// for rows that see all positions, and for those that see a window.
var prefillKernels = map[int]struct {
	all, window string
	dim         int
}{
	64:  {"reel_attend_prefill_64", "reel_attend_prefill_64_window", 64},
	96:  {"reel_attend_prefill_96", "reel_attend_prefill_96_window", 96},
	128: {"reel_attend_prefill_128", "reel_attend_prefill_128_window", 128},
	0:   {"reel_attend_prefill_any", "reel_attend_prefill_any_window", 128},
}

// prefillKernel is the kernel for o's head size and window, and the size that it computes with.
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
	g, window, join := o.prefillGrid(q.SMs())
	g.Shared = 2 * 2 * prefillKeys * 2 * dim // two stages of keys and values
	args := o.args(q, window, join, prefillSplit)
	o.setHandover(q, &args)
	return cuda.Launch(q, kernel, g, args)
}

// goOnward has the results go to Next, where the product after this one reads them there.
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

// prefillGrid gives each tile of rows and KV head a block of threads: tiles as small
// as lets the GPU take all of them at once. Where the context is long, some tiles
// become one, whose blocks compute its splits at once. No result depends on it.
func (o Attend) prefillGrid(sms int) (g cuda.Grid, window, join int) {
	g = cuda.Grid{X: o.KV.Heads * splitsOf(o.Heads/o.KV.Heads, prefillQueries), Z: 1, Threads: 32 * prefillWarps, Dependent: tune.DependentLaunch}
	window, join = o.prefillRows(prefillQueries), 1
	splits := splitsOf(o.Slots.Context, prefillSplit)
	if !tune.ParallelSplits || !o.prefillFits(g.X, splits) {
		g.Y = splitsOf(o.T, window)
		return g, window, join
	}
	for _, entries := range []int{minPrefillQueries, 32} {
		rows := o.prefillRows(entries)
		if entries == tune.PrefillQueries || tune.PrefillQueries == 0 && g.X*splitsOf(o.T, rows) <= 2*sms {
			window, join = rows, window/rows
			break
		}
	}
	g.Y = splitsOf(o.T, window)
	g.Z = max(1, min(splits, 2*sms/(g.X*g.Y)))
	return g, window, join
}

// prefillFits tells whether Work holds the sums of all rows' splits, and counters for
// x blocks of each of the smallest tiles.
func (o Attend) prefillFits(x, splits int) bool {
	counters := AttendSplitRows * o.Heads
	return x*splitsOf(o.T, o.prefillRows(minPrefillQueries)) <= counters && 4*(int64(counters)+int64(o.T*o.Heads)*int64(splits)*int64(o.KV.HeadDim+2)) <= o.Workspace.Bytes()
}

// prefillRows is how many rows make so many queries of a KV head, at least one.
func (o Attend) prefillRows(entries int) int { return max(1, entries/(o.Heads/o.KV.Heads)) }
