//go:build cuda

package kernels

import (
	"fmt"

	"reel/kernels/device/cuda"
)

// The kernels of prompt.cuh, as products.cuh has them, of units of one and of two row
// tiles: tokens of a block, and how many pieces of weights and of activations it holds.
var prompts = [][]variant{
	1: {prompt(16, 5, 14), prompt(56, 4, 6), prompt(104, 4, 3), prompt(208, 5, 5)},
	2: {prompt(16, 3, 11), prompt(56, 3, 3), prompt(104, 4, 3), prompt(208, 5, 5)},
}

// promptTiles is how many row tiles a block of prompt.cuh owns.
const promptTiles = 8

func prompt(tokens, ahead, stages int) variant {
	const piece = 128 // bytes of a token, or of a row of weights
	return variant{fmt.Sprintf("_prompt%d", tokens), promptTiles, tokens, 288, 2048 + (ahead*promptTiles*tileRows+stages*tokens)*piece}
}

// promptArgs is PromptArgs of prompt.cuh.
type promptArgs[T any] struct {
	op             T
	rounded        rounded
	next           onward
	segments, pair int32
}

// onward is Onward of deep.cuh.
type onward struct {
	rows, norm, squares uint64
	tokens, _           int32
}

// promptSegments is how many segments a prompt's sums have in weights of at least so
// many blocks of outputs: few outputs need more, for work on all multiprocessors. They
// depend on nothing else, or a token's result would depend on its company.
var promptSegments = []struct{ blocks, segments int }{{512, 1}, {128, 2}, {0, 4}}

// segmentsOf is how many segments there are for so many row tiles.
func segmentsOf(tiles int) int {
	for _, s := range promptSegments {
		if splitsOf(tiles, promptTiles) >= s.blocks {
			return s.segments
		}
	}
	return 1
}

// promptPair is how many blocks share the activations that they read.
var promptPair = 1

// promptFor is the kernel of these that takes n tokens in the least time.
func promptFor(prompts []variant, n int) *variant {
	const fixed = 40 // what a block costs beside its tokens, in tokens
	best, least := &prompts[0], 0
	for i := range prompts {
		v := &prompts[i]
		if cost := (n + v.tokens - 1) / v.tokens * (v.tokens + fixed); least == 0 || cost < least {
			best, least = v, cost
		}
	}
	return best
}

// launchPrompt launches p over a prompt's tokens.
func launchPrompt[T any](q *cuda.Queue, p tiled, kind string, args T) error {
	r, err := p.read(q, kind)
	if err != nil {
		return err
	}
	n, tiles := int(p.in.n), p.units*p.tiles
	v, segments, pair := promptFor(prompts[p.tiles], n), segmentsOf(tiles), promptPair
	g := cuda.Grid{X: segments * pair, Y: (n + v.tokens - 1) / v.tokens, Z: (tiles + promptTiles*pair - 1) / (promptTiles * pair),
		Threads: v.threads, Shared: v.shared, Cluster: segments * pair, Dependent: dependentLaunch}
	return cuda.Launch(q, p.name+kind+v.suffix, g, promptArgs[T]{args, r, p.onward(q, n), int32(segments), int32(pair)})
}

// read is the rows that p reads: rounded by the op before, or else now.
func (p tiled) read(q *cuda.Queue, kind string) (rounded, error) {
	if !p.ready || p.in.cols%128 != 0 {
		return p.round(q, kind)
	}
	r := roundedAt(q.Address(p.scratch), int(p.in.n), int(p.in.cols))
	if p.in.norm != 0 {
		r.parts = p.in.cols / 128
	}
	return r, nil
}

// onward is where p leaves rows for the next product, if anywhere.
func (p tiled) onward(q *cuda.Queue, n int) onward {
	cols := p.weights[0].Rows
	if p.next.Bytes() < ScratchBytes(n, cols) || cols%128 != 0 {
		return onward{}
	}
	r := roundedAt(q.Address(p.next), n, cols)
	return onward{rows: r.rows, norm: p.nextNorm, squares: r.scales, tokens: r.tokens}
}

// roundedAt is where n rows of cols columns lie in scratch.
func roundedAt(scratch uint64, n, cols int) rounded {
	tokens := (n + 7) &^ 7
	return rounded{rows: scratch, scales: scratch + uint64(tokens*((cols+63)&^63)*2), tokens: int32(tokens)}
}
