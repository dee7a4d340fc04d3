//go:build cuda

package kernels

import (
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// streamKVariants are the kernels of the stream-K prefill GEMM, with as many token rows per
// block and stages of the shared-memory pipeline as the .cu files instantiate.
var streamKVariants = []variant{
	newStreamKVariant(16, 12), newStreamKVariant(56, 8), newStreamKVariant(104, 7), newStreamKVariant(208, 5),
}

func newStreamKVariant(tokens, stages int) variant {
	const kBlockBytes = 2 * kBlockCols // of a token, or of a row of weights
	threads := 352
	if tokens > 56 { // a whole warpgroup of helper warps, which gives its registers to the others
		threads = 384
	}
	shared := roundUp1024(256+4*tokens) + roundUp1024(16*tokens) + stages*(streamKTiles*tileRows+tokens)*kBlockBytes
	return variant{fmt.Sprintf("_streamk%d", tokens), streamKTiles, tokens, threads, shared}
}

// streamKVariant returns the variant for n tokens of a product with a slice for each SM.
func streamKVariant(n int) *variant { return cheapest(streamKVariants, n) }

// variant returns the variant for n tokens. A product with fewer slices than SMs has smaller tiles of tokens, so that
// more blocks share a slice, if the workspace for larger ones suffices.
func (s sliceShape) variant(n int) *variant {
	best := streamKVariant(n)
	if tune.StreamKTokens != 0 {
		return best
	}
	cost := func(v *variant) int {
		rounds, _, _ := s.grid(splitsOf(n, v.tokens))
		return rounds * (v.tokens + weightsCost)
	}
	most := splitsOf(n, maxStreamKTokens) * maxStreamKTokens
	for i := range streamKVariants {
		v := &streamKVariants[i]
		tiles := splitsOf(n, v.tokens)
		if tiles*v.tokens <= most && 8*tiles*tune.MaxWorkSlices <= arrivalBytes && s.hasPlaces(v.tokens, tiles) &&
			cost(v) < cost(best) {
			best = v
		}
	}
	return best
}

// weightsCost is the cost of reading the weights once more, in tokens. Measured at 7B, before the blocks of different
// token tiles read the weights side by side.
const weightsCost = 320

// cheapest returns the variant that takes n tokens in the least time, or the one that [tune.StreamKTokens] names.
func cheapest(variants []variant, n int) *variant {
	best, least := &variants[0], 0
	for i := range variants {
		v := &variants[i]
		if tune.StreamKTokens == v.tokens {
			return v
		}
		if cost := (n + v.tokens - 1) / v.tokens * (v.tokens + weightsCost); least == 0 || cost < least {
			best, least = v, cost
		}
	}
	return best
}

// launchStreamK launches p, of the prefill class.
func launchStreamK[T any](q *cuda.Queue, p productLaunch, kind string, args T) error {
	r, err := p.input(q, kind)
	if err != nil {
		return err
	}
	shape := sliceShapeOf(p.units*p.tiles, int(p.in.cols), true)
	if shape.wholeSuits(int(p.in.n)) {
		return launchWhole(q, p, shape, kind, r, args)
	}
	v := shape.variant(int(p.in.n))
	return launchSlices(q, p, v, unitRun{p.weights[0].DType, 0, p.units}, r, args)
}

// launchSlices launches the stream-K kernel v for a run of p's units over rounded rows.
func launchSlices[T any](q *cuda.Queue, p productLaunch, v *variant, run unitRun, r roundedInput, args T) error {
	n, cols := int(p.in.n), int(p.in.cols)
	shape := sliceShapeOf(run.units*p.tiles, cols, !run.format.Quantised())
	tokenTiles, tokens := evenTiles(n, v.tokens)
	rounds, x, y := shape.grid(tokenTiles)
	g := cuda.Grid{X: x, Y: y, Cluster: clusterSize(x), Threads: v.threads, Shared: v.shared,
		Dependent: tune.DependentLaunch}
	if !shape.hasPlaces(v.tokens, tokenTiles) {
		return fmt.Errorf("%w: no places for sums of %d slices for %d tiles of %d tokens", device.ErrBadShape,
			shape.slices, tokenTiles, v.tokens)
	}
	arrivals, sums := exchangeAt(q.Address(p.workspace.Partials), v.tokens)
	plan := shape.args(tokenTiles, tokens)
	plan.rounds = int32(rounds)
	plan.firstUnit, plan.endUnit = int32(run.first), int32(run.first+run.units)
	return cuda.Launch(q, p.name+formats[run.format].kernel+v.suffix, g, streamKArgs[T]{op: args, rounded: r,
		handover: p.epilogue(q, n), partials: sums, arrivals: arrivals, plan: plan})
}

// args returns the kernel's argument for tokenTiles tiles of tokens token rows.
func (s sliceShape) args(tokenTiles, tokens int) slicePlan {
	a := slicePlan{slices: int32(s.slices), tokenTiles: int32(tokenTiles), kBlocks: int32(s.kBlocks),
		perTile: int32(slicesPerTile(s.slices, s.tiles)), tokens: int32(tokens)}
	for i, start := range s.starts() {
		a.starts[i] = uint32(start.tile)<<16 | uint32(start.kBlock)
	}
	if a.perTile > 0 {
		a.inverse = math.MaxUint32/uint32(a.perTile) + 1
	}
	return a
}

// canStreamK reports whether p has whole tiles of outputs, and the memory for split-K
// partials. All ops of a pass that have any get the same answer.
func (p productLaunch) canStreamK() bool {
	if !p.wholeTiles() {
		return false
	}
	n := int(p.in.n)
	v := streamKVariant(n)
	if p.weights[0].Layout == Codes { // token tiles of all formats are alike
		v = cheapest(codesVariants[p.weights[0].DType], n)
	}
	counters := splitsOf(n, v.tokens) * tune.MaxWorkSlices
	want := partialsBytes(n, p.units*p.tiles, int(p.in.cols))
	return 8*counters <= arrivalBytes && p.workspace.Partials.Bytes() >= want
}

// input returns p's input rows as the op before left them, or rounds them now.
func (p productLaunch) input(q *cuda.Queue, kind string) (roundedInput, error) {
	if !p.handover.InputIsRounded || p.in.cols%128 != 0 {
		return p.round(q, kind)
	}
	r := roundedAt(q.Address(p.workspace.Rounded), int(p.in.n), int(p.in.cols))
	if p.in.norm != 0 {
		r.squares = p.in.cols / 128
	}
	return r, nil
}

// epilogue returns the arguments of p's fused epilogue over n rows, or zeros if it has none.
func (p productLaunch) epilogue(q *cuda.Queue, n int) handoverArgs {
	part := p.weights[0].Rows
	cols := part * max(1, p.handover.Ranks)
	if p.handover.Rounded.Bytes() < RoundedBytes(n, cols) || cols%128 != 0 {
		return handoverArgs{}
	}
	r := roundedAt(q.Address(p.handover.Rounded), n, cols)
	first := uint64(0) // column of this rank's part
	if p.handover.Ranks > 1 {
		first = uint64(q.Rank() * part)
	}
	a := handoverArgs{rows: r.rows + first*2*uint64(r.tokens), norm: q.Address(p.handover.Norm),
		squares: r.scales + first/128*4*uint64(r.tokens), tokens: r.tokens}
	if a.norm != 0 {
		a.norm += 4 * first
	}
	return a
}
