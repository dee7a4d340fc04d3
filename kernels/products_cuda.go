//go:build cuda

package kernels

import (
	"fmt"
	"math"

	"reel/kernels/device"
	"reel/kernels/device/cuda"
)

// activations is Activations of common.cuh: n rows of x; where rows is there, row
// t is x[rows[t]].
type activations struct {
	x, norm, rows uint64
	cols, n       int32
	eps           float32
	_             int32
}

// variant is one of the kernels of a product. Which one runs changes no sum.
type variant struct {
	suffix  string
	tiles   int // row tiles of a block; 0: one unit
	tokens  int // token rows of a block
	threads int
	shared  int // bytes of shared memory that the launch gives
}

// The variants, as products.cuh has them.
var (
	single   = variant{suffix: "_1", tokens: 1, threads: 512}
	narrow8  = variant{suffix: "_8", tokens: 8, threads: 512}
	narrow16 = variant{suffix: "_16", tokens: 16, threads: 512}
	picked   = variant{suffix: "_picked", threads: 512} // any number of rows, those first that are there
	wide32   = variant{"_wide32", 4, 32, 512, 41472}
	wide64   = variant{"_wide64", 16, 64, 512, 98560}
	deep64   = variant{"_deep64", 4, 64, 544, 1024 + 3*65536}
	deep104  = variant{"_deep104", 8, 104, 288, 1024 + 5*29696 + 66560}
)

// singleShared is the shared memory that a block has on every GPU, less the kernel's own.
const singleShared = 94 << 10

// inTurn is how many blocks a multiprocessor has at a time where blocks take an op's units in
// turn, for one row and for up to 8; no more are launched. 0: each unit has a block. It is
// what the op's kernels have as IN_TURN_1 and IN_TURN_8. A block that goes on to another unit
// reads its weights while it finishes one. Measured (NOTES.md), that is worth it for q, k
// and v, for the head, and for gate and up where a block has a multiprocessor for itself; but
// gate and up of one row lose by it, and output and down have hardly more units than places.
type inTurn struct{ single, narrow8 int }

// turnBlocks bounds blocks that take units in turn; a test has fewer of them than units.
var turnBlocks = math.MaxInt32

// narrowed is the variant for few rows, or nil.
func narrowed(n int) *variant {
	switch {
	case n <= single.tokens:
		return &single
	case n <= narrow8.tokens:
		return &narrow8
	case n <= narrow16.tokens:
		return &narrow16
	}
	return nil
}

// widened is the variant for many rows without scratch.
func widened(n int) *variant {
	if n <= 64 {
		return &wide32
	}
	return &wide64
}

// deepened is the variant for many rows with scratch: the one whose blocks are done
// sooner on sms multiprocessors, each of which has one at a time. tiles is how many
// row tiles there are.
func deepened(n, tiles, sms int) *variant {
	// Measured: a block of deep104 takes 5/2 of the time of one of deep64.
	if 2*deep64.waves(n, tiles, sms) <= 5*deep104.waves(n, tiles, sms) {
		return &deep64
	}
	return &deep104
}

// waves is how many blocks a multiprocessor runs one after another.
func (v *variant) waves(n, tiles, sms int) int {
	g := v.grid(n, tiles, 1)
	return (g.X*g.Y + sms - 1) / sms
}

// grid is how v is launched over n token rows and units of tiles row tiles each.
func (v *variant) grid(n, units, tiles int) cuda.Grid {
	g := cuda.Grid{X: units, Threads: v.threads, Shared: v.shared, Dependent: dependentLaunch}
	if v.tiles > 0 {
		perBlock := v.tiles / tiles
		g.X, g.Y = (n+v.tokens-1)/v.tokens, (units+perBlock-1)/perBlock
	}
	return g
}

// tiled is a product over the rows of in and units of tiles row tiles each.
type tiled struct {
	name         string
	in           activations
	units, tiles int
	inTurn       inTurn
	scratch      device.Buffer
	parts        device.Buffer // what blocks leave each other of a prompt's sums
	prefill      bool
	picked       bool          // in lists rows, those first that are there, mostly few
	ready        bool          // scratch has the rows
	next         device.Buffer // where the results go rounded, or none
	nextNorm     uint64        // the norm before they are, or 0
	weights      []Weight
}

// rounded is Rounded of deep.cuh.
type rounded struct {
	rows, scales  uint64
	tokens, parts int32
}

// deepArgs is DeepArgs of deep.cuh.
type deepArgs[T any] struct {
	op      T
	rounded rounded
}

// roundArgs is RoundArgs of deep.cuh.
type roundArgs struct {
	in          activations
	out, scales uint64
	tokens      int32
	_           int32
}

// launch launches p's kernel with args, its struct.
func launch[T any](q *cuda.Queue, p tiled, args T) error {
	kind, err := elementsOf(p.weights...)
	if err != nil {
		return err
	}
	n := int(p.in.n)
	if p.prefill && p.canRound(q) {
		if p.canPart() {
			return launchPrompt(q, p, kind, args)
		}
		if p.ready { // on other GPUs nobody has left rows rounded
			return fmt.Errorf("%w: %d rows of a prompt were left rounded, and there is no room for parts of their sums, or outputs make no whole row tiles", device.ErrBadShape, n)
		}
	}
	v := narrowed(n)
	if p.picked && v != &single {
		v = &picked
	}
	if v == &single && p.rowBytes() > singleShared {
		v = &narrow8
	}
	if v == nil && p.canRound(q) {
		r, err := p.round(q, kind)
		if err != nil {
			return err
		}
		v = deepened(n, p.units*p.tiles, q.SMs())
		return cuda.Launch(q, p.name+kind+v.suffix, v.grid(n, p.units, p.tiles), deepArgs[T]{args, r})
	}
	if v == nil {
		v = widened(n)
	}
	g := v.grid(n, p.units, p.tiles)
	g.X = min(g.X, p.blocks(v, q.SMs()))
	if v == &single {
		g.Shared = p.rowBytes()
	}
	return cuda.Launch(q, p.name+kind+v.suffix, g, args)
}

// blocks is how many blocks of v are launched at most on sms multiprocessors.
func (p tiled) blocks(v *variant, sms int) int {
	each := 0
	switch v {
	case &single:
		each = p.inTurn.single
	case &narrow8, &picked:
		each = p.inTurn.narrow8
	}
	if each == 0 {
		return math.MaxInt32
	}
	return min(each*sms, turnBlocks)
}

// rowBytes is the shared memory that a row takes, with its norm weights.
func (p tiled) rowBytes() int {
	if p.in.norm != 0 {
		return int(p.in.cols) * 8
	}
	return int(p.in.cols) * 4
}

// canRound tells whether the GPU has the kernels that read rounded activations, and
// the op the memory for them.
func (p tiled) canRound(q *cuda.Queue) bool {
	return rounds(q, p.scratch, int(p.in.n), int(p.in.cols))
}

// rounds tells the same of a product over n rows of cols columns.
func rounds(q *cuda.Queue, scratch device.Buffer, n, cols int) bool {
	major, minor := q.Capability()
	return major == 9 && minor == 0 && scratch.Bytes() >= RoundedBytes(n, cols)
}

// round launches the kernel that rounds the rows of in.
func (p tiled) round(q *cuda.Queue, kind string) (rounded, error) {
	r := roundedAt(q.Address(p.scratch), int(p.in.n), int(p.in.cols))
	return r, cuda.Launch(q, "reel_round"+kind, cuda.Grid{X: int(r.tokens), Threads: 256, Dependent: dependentLaunch},
		roundArgs{in: p.in, out: r.rows, scales: r.scales, tokens: r.tokens})
}

// elementsOf is the part of a kernel's name that says what the weights hold.
func elementsOf(weights ...Weight) (string, error) {
	for _, w := range weights {
		if w.Layout != Fragments || w.DType == F32 || w.DType != weights[0].DType {
			return "", fmt.Errorf("%w: weights of an op must all be packed, and all bfloat16 or all float16", device.ErrBadShape)
		}
	}
	if weights[0].DType == F16 {
		return "_f16", nil
	}
	return "_bf16", nil
}

// tilesOf is how many row tiles rows make.
func tilesOf(rows int) int { return (rows + tileRows - 1) / tileRows }
