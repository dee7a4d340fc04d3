//go:build cuda

package kernels

import (
	"fmt"
	"math"

	"reel/kernels/device/cuda"
)

// The kernels of prompt.cuh, as products.cuh has them: tokens of a block, and how many
// pieces of weights and of activations it holds.
var prompts = []variant{prompt(16, 12), prompt(56, 8), prompt(104, 7), prompt(208, 5)}

func prompt(tokens, stages int) variant {
	const piece = 128 // bytes of a token, or of a row of weights
	threads := 352
	if tokens > 56 { // which take the registers of a warpgroup beside them
		threads = 384
	}
	shared := thousands(256+4*tokens) + thousands(16*tokens) + stages*(promptTiles*tileRows+tokens)*piece
	return variant{fmt.Sprintf("_prompt%d", tokens), promptTiles, tokens, threads, shared}
}

// thousands rounds n up to a multiple of 1,024.
func thousands(n int) int { return (n + 1023) &^ 1023 }

// promptArgs is PromptArgs of prompt.cuh.
type promptArgs[T any] struct {
	op             T
	rounded        rounded
	next           onward
	sums, meetings uint64
	cut            cut
}

// cut is Cut of spans.cuh, which holds its size to be this one's.
type cut struct {
	spans, tiles, pieces, parts int32
	inverse                     uint32
	tokens                      int32
	starts                      [spanStarts]uint32
}

// onward is Onward of deep.cuh.
type onward struct {
	rows, norm, squares uint64
	tokens, _           int32
}

// promptFor is the kernel of these that takes n tokens in the least time.
func promptFor(prompts []variant, n int) *variant {
	const fixed = 320 // what reading the weights once more costs, in tokens: measured at 7B, before tiles went together
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
	n, units, pieces := int(p.in.n), splitsOf(p.units*p.tiles, promptTiles), splitsOf(int(p.in.cols), promptPiece)
	v, spans := promptFor(prompts, n), spansOf(p.units*p.tiles, int(p.in.cols))
	tiles, tokens := evenly(n, v.tokens)
	c := cut{spans: int32(spans), tiles: int32(tiles), pieces: int32(pieces), parts: int32(sharing(spans, units)), tokens: int32(tokens)}
	for i, start := range (cutShape{spans, units, pieces}).cut() {
		c.starts[i] = uint32(start.unit)<<16 | uint32(start.piece)
	}
	if c.parts > 0 {
		c.inverse = math.MaxUint32/uint32(c.parts) + 1
	}
	side := together(spans, units, tiles)
	parts := q.Address(p.parts)
	g := cuda.Grid{X: side, Y: spans / side, Cluster: pairs(side), Threads: v.threads, Shared: v.shared, Dependent: dependentLaunch}
	return cuda.Launch(q, p.name+kind+v.suffix, g, promptArgs[T]{op: args, rounded: r, next: p.onward(q, n), sums: parts + meetingBytes, meetings: parts, cut: c})
}

// canPart tells whether the op has whole row tiles, and the memory for parts of its sums. All ops
// of a pass that have any are told the same.
func (p tiled) canPart() bool {
	n := int(p.in.n)
	for _, w := range p.weights {
		if w.Rows%tileRows != 0 {
			return false
		}
	}
	counters := splitsOf(n, promptFor(prompts, n).tokens) * promptSpans
	return 8*counters <= meetingBytes && p.parts.Bytes() >= partialsBytes(n, p.units*p.tiles, int(p.in.cols))
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
	if p.next.Bytes() < RoundedBytes(n, cols) || cols%128 != 0 {
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
