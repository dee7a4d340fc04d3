//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// Constants of attention/many.cuh.
const (
	attendManyShared  = 1280 // before the ring
	attendManyStatic  = 7168 // shared memory beside that of a launch, at most
	attendManyRow     = 20   // of shared memory, for each row of a step
	attendManyQueue   = 2    // units whose queries are in shared memory
	attendManyBlock   = 32   // positions of a warp
	attendManyMinPage = 4    // tokens of a page: each lane of a warp copies from one of a split's pages
	attendManyBlocks  = 2    // of an SM, at most
	// Stages of the ring: at least those of a split.
	attendManyLeastStages, attendManyMostStages = 2 * attendWarps, 32
)

// attendManyKernels are the kernels of many rows by head size, rounded up to a multiple of 32: without softcap and sinks,
// and with. Not all sizes have the latter.
var attendManyKernels = func() (all [attendTwoAtMost / 32]struct{ plain, logits string }) {
	for i := range all {
		all[i].plain = fmt.Sprintf("reel_attend_%d_many", 32*(i+1))
		all[i].logits = all[i].plain + "_logits"
	}
	return all
}()

// isMany reports whether o's rows go through the kernels of many rows, whose blocks share rows of unequal length evenly:
// if there are more of them, and of their heads, than blocks that run at the same time.
func (o Attend) isMany(q *cuda.Queue) bool {
	return hopper(q) && o.Class == Decode && o.T > skinny8.tokens && o.T <= mostManyRows &&
		o.T*rowBlocks(o.KV.Heads, o.Heads/o.KV.Heads) > tune.ManyAttend*q.SMs() &&
		o.Queries <= 1 && o.First == 0 && !o.spreads() && o.KV.PageTokens >= attendManyMinPage && o.manySize()
}

// manySize reports whether there is a kernel for o's heads.
func (o Attend) manySize() bool {
	size := (o.KV.HeadDim + 31) / 32
	return size <= attendTwoAtMost/32 && (!o.hasLogits() || size == 2 || size == 4)
}

// launchMany launches one of these kernels, with as many blocks as run at the same time. They copy the rows' own keys and
// values with all others, so QK post-processing has its kernel before them, as without deferred RoPE.
func (o Attend) launchMany(q *cuda.Queue, args attendArgs) error {
	if !o.Post.IsZero() {
		if err := o.post().launch(q, o.Q); err != nil {
			return err
		}
	}
	blocks, stages, shared := o.manyRing(sharedMemory(q))
	args.parts = int32(stages)
	args.ahead = o.Handover.ahead(q, o.T, blocks*q.SMs())
	g := cuda.Grid{X: blocks * q.SMs(), Threads: 32 * (attendWarps + 1), Shared: shared, AllShared: true, Dependent: true}
	kernels := &attendManyKernels[(o.KV.HeadDim-1)/32]
	if o.hasLogits() {
		return cuda.Launch(q, kernels.logits, g, attendLogitsArgs[attendArgs]{args, o.logits(q)})
	}
	return cuda.Launch(q, kernels.plain, g, args)
}

// manyRing returns how many blocks run on an SM at the same time, the stages of their rings, and the shared memory of a
// block, of at most the given bytes: two blocks if their rings then hold a split.
func (o Attend) manyRing(bytes int) (blocks, stages, shared int) {
	const reserved = 1 << 10 // of each block
	entries, d := min(o.Heads/o.KV.Heads, attendQueries), o.KV.HeadDim
	others := attendManyShared + attendManyRow*o.T +
		4*entries*(attendManyQueue*d+(2*attendWarps+3)*attendWide(d))
	stage := 2 * attendManyBlock * splitsOf(d, 32) * 32
	for blocks = attendManyBlocks; ; blocks-- {
		stages = min(((bytes+reserved)/blocks-reserved-attendManyStatic-others)/stage, attendManyMostStages)
		if blocks == 1 || stages >= attendManyLeastStages {
			return blocks, stages, others + stages*stage
		}
	}
}
