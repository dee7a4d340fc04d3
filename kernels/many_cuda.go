//go:build cuda

package kernels

import (
	"fmt"
	"math"
	"slices"

	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// manyVariants are the kernels of many generated rows.
var manyVariants = newManyVariants()

func newManyVariants() (all []variant) {
	for _, k := range manyKernels {
		all = append(all, variant{fmt.Sprintf("_many%d", k.rows), streamKTiles, k.rows, k.threads(), k.shared()})
	}
	return all
}

// manyVariant returns the variant for n rows.
func manyVariant(n int) *variant {
	return &manyVariants[slices.Index(manyKernels, manyKernelOf(n))]
}

// canMany reports whether p's rows can go through the kernels of many generated rows.
func (p productLaunch) canMany(q *cuda.Queue) bool {
	n := int(p.in.n)
	if n > mostManyRows || !p.canRound(q) || p.workspace.Partials.Bytes() < manyBytes(n) {
		return false
	}
	for _, w := range p.weights {
		if w.Rows%tileRows != 0 && p.name != "reel_head" {
			return false
		}
	}
	return true
}

// launchMany launches the kernel of many generated rows. All of its blocks run at the same time, because some wait for
// others.
func launchMany[T any](q *cuda.Queue, p productLaunch, kind string, args T) error {
	r, err := p.manyInput(q, kind)
	if err != nil {
		return err
	}
	n := int(p.in.n)
	v := manyVariant(n)
	tiles, each := evenTiles(n, v.tokens)
	s := cutMany(splitsOf(p.units*p.tiles, streamKTiles), max(min(q.SMs(), tune.MaxWorkSlices)/tiles, 1))
	plan := s.args()
	plan.tokenTiles, plan.tokens, plan.endUnit = int32(tiles), int32(each), int32(p.units)
	plan.kBlocks = int32(splitsOf(int(p.in.cols), kBlockCols))
	arrivals, sums := exchangeAt(q.Address(p.workspace.Partials), v.tokens)
	g := cuda.Grid{X: tiles, Y: s.count(), Cluster: clusterSize(tiles), Threads: v.threads, Shared: v.shared,
		Dependent: tune.DependentLaunch}
	return cuda.Launch(q, p.name+kind+v.suffix, g, manyArgs[T]{op: args, rounded: r,
		handover: p.epilogue(q, n), sums: sums, arrivals: arrivals, plan: plan,
		ahead: p.handover.ahead(q, n, s.count())})
}

// aheadRows is the most rows whose kernels bring weights to the cache: of more, products are not bound by reading them.
const aheadRows = 128

// ahead returns what each block of a kernel of n rows brings to the cache of the weights that come next: an equal share
// of tune.AheadBytes an SM, at the beginning of its part of each weight.
func (h Handover) ahead(q *cuda.Queue, n, blocks int) (a aheadArgs) {
	if n > aheadRows {
		return a
	}
	all, bytes := int64(0), int64(tune.AheadBytes*q.SMs()/blocks)
	for _, w := range h.Next {
		all += w.Bytes()
	}
	for i, w := range h.Next {
		if w.Bytes() == 0 {
			continue
		}
		part := w.Bytes() / int64(blocks) &^ 15
		a.at[i], a.apart[i] = q.Address(w), uint32(part)
		a.bytes[i] = uint32(min(part, bytes*w.Bytes()/all&^15))
	}
	return a
}

// manyInput returns p's input rows as the op before left them, or rounds them now.
func (p productLaunch) manyInput(q *cuda.Queue, kind string) (roundedInput, error) {
	if !p.handover.InputIsRounded || p.in.cols%128 != 0 {
		return p.round(q, kind)
	}
	r := roundedAt(q.Address(p.workspace.Rounded), int(p.in.n), int(p.in.cols))
	if p.in.norm != 0 {
		r.squares = -1 // the kernel computes the scales
	}
	return r, nil
}

// args returns the kernel's argument, without the product's dimensions.
func (s manySlices) args() slicePlan {
	a := slicePlan{slices: int32(s.count()), perTile: int32(s.perTile)}
	for i, start := range s.starts {
		a.starts[i] = uint32(start.tile)<<16 | uint32(start.part)
	}
	if s.perTile > 0 {
		a.inverse = math.MaxUint32/uint32(s.perTile) + 1
	}
	return a
}

// mostManyRows is the most rows that these kernels compute: blocks for all of them run side by side.
const mostManyRows = 1024

// threads returns the threads of a block.
func (k manyKernel) threads() int {
	if k.rows > 64 { // a whole warpgroup of helpers, which gives its registers to the others
		return 384
	}
	return 352
}
