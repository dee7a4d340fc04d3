//go:build cuda

package kernels

import "reel/kernels/device/cuda"

// Constants of attend_prefill.cu: queries of a tile, keys of a block, warps of a block of threads.
const (
	prefillEntries = 64
	prefillKeys    = 64
	prefillWarps   = 4
)

// prefillKernel is the kernel for a head size, and the size that it computes with.
func prefillKernel(headDim int) (string, int) {
	switch headDim {
	case 64:
		return "reel_attend_prefill_64", 64
	case 96:
		return "reel_attend_prefill_96", 96
	case 128:
		return "reel_attend_prefill_128", 128
	}
	return "reel_attend_prefill_any", 128
}

// prefillApart lets splits be computed at once. Results do not depend on it, which a
// test shows by turning it off.
var prefillApart = true

// prefill launches the kernel of the prefill class.
func (o Attend) prefill(q *cuda.Queue) error {
	kernel, dim := prefillKernel(o.KV.HeadDim)
	return cuda.Launch(q, kernel, o.prefillGrid(q, dim), o.args(q, o.prefillWindow(), prefillSplit))
}

// prefillGrid gives each tile of rows and KV head a block of threads, and each split
// one where that leaves multiprocessors idle. No result depends on it.
func (o Attend) prefillGrid(q *cuda.Queue, dim int) cuda.Grid {
	g := cuda.Grid{X: o.KV.Heads * splitsOf(o.Heads/o.KV.Heads, prefillEntries), Y: splitsOf(o.T, o.prefillWindow()), Threads: 32 * prefillWarps, Dependent: dependentLaunch}
	if splits := splitsOf(o.Slots.Context, prefillSplit); prefillApart && o.prefillFits(g.X*g.Y, splits) {
		g.Z = max(1, min(splits, 2*q.SMs()/(g.X*g.Y)))
	}
	// Two stages of keys and values.
	g.Shared = 2 * 2 * prefillKeys * 2 * dim
	return g
}

// prefillFits tells whether Work holds the counters of so many tiles and the sums of
// all rows' splits.
func (o Attend) prefillFits(tiles, splits int) bool {
	counters := attendSplitRows * o.Heads
	return tiles <= counters && 4*(int64(counters)+int64(o.T*o.Heads)*int64(splits)*int64(o.KV.HeadDim+2)) <= o.Work.Bytes()
}

// prefillWindow is how many rows a tile has.
func (o Attend) prefillWindow() int { return prefillEntries / min(prefillEntries, o.Heads/o.KV.Heads) }
