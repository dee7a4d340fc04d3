//go:build cuda

package kernels

import (
	"fmt"
	"math"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// variant is one kernel of a product. All variants of the decode class add in the same
// order, so the choice changes no bit.
type variant struct {
	suffix  string // of the kernel's name
	tiles   int    // tiles of 16 outputs per block; 0: one unit of the op
	tokens  int    // token rows per block
	threads int
	shared  int // bytes of dynamic shared memory
}

// The variants of the decode class.
var (
	gemv     = variant{suffix: "_gemv", tokens: 1, threads: 512}
	skinny8  = variant{suffix: "_skinny8", tokens: 8, threads: 512}
	skinny16 = variant{suffix: "_skinny16", tokens: 16, threads: 512}
	tiled32  = variant{"_tiled32", 4, 32, 512, 41472}
	tiled64  = variant{"_tiled64", 16, 64, 512, 98560}
	wgmma64  = variant{"_wgmma64", 4, 64, 544, 1024 + 3*65536}
	wgmma104 = variant{"_wgmma104", 8, 104, 288, 1024 + 5*29696 + 66560}
)

// persistent is how many persistent blocks per SM gemv and skinny8 launch; 0: one block per
// unit. The op's kernels are compiled for the same numbers. A persistent block
// prefetches the weights of its next unit while it finishes one. As measured (notes/few_rows.md) this
// helps QKV, the head, and GateUp if a block has an SM to itself. It slows GateUp of one row, except
// where persistsForOneRow says so; the output and down projections have hardly more units than blocks.
type persistent struct{ gemv, skinny8 int }

// fewRowsVariant returns the variant for n rows, or nil if n is more than 16.
func fewRowsVariant(n int) *variant {
	switch {
	case n <= gemv.tokens:
		return &gemv
	case n <= skinny8.tokens:
		return &skinny8
	case n <= skinny16.tokens:
		return &skinny16
	}
	return nil
}

// tiledVariant returns the variant for many rows that are not rounded beforehand.
func tiledVariant(n int) *variant {
	if n <= 64 {
		return &tiled32
	}
	return &tiled64
}

// wgmmaVariant returns the variant for many rounded rows that finishes sooner on sms SMs,
// each of which runs one block at a time. tiles counts tiles of 16 outputs.
func wgmmaVariant(n, tiles, sms int) *variant {
	// Measured: a block of wgmma104 takes 5/2 of the time of a block of wgmma64.
	if 2*wgmma64.waves(n, tiles, sms) <= 5*wgmma104.waves(n, tiles, sms) {
		return &wgmma64
	}
	return &wgmma104
}

// waves returns how many blocks each SM runs one after another.
func (v *variant) waves(n, tiles, sms int) int {
	g := v.grid(n, tiles, 1)
	return (g.X*g.Y + sms - 1) / sms
}

// grid returns v's grid over n token rows and units of tiles tiles each.
func (v *variant) grid(n, units, tiles int) cuda.Grid {
	g := cuda.Grid{X: units, Threads: v.threads, Shared: v.shared, Dependent: tune.DependentLaunch}
	if v.tiles > 0 {
		perBlock := v.tiles / tiles
		g.X, g.Y = (n+v.tokens-1)/v.tokens, (units+perBlock-1)/perBlock
	}
	return g
}

// productLaunch is a product over the rows of in. Its outputs are units of tiles tiles each.
type productLaunch struct {
	name         string // of the kernels, without element type and variant
	in           activations
	units, tiles int
	persistent   persistent
	class        Class
	generated    Generated
	workspace    Workspace
	handover     Handover
	weights      []Weight
	unitsOf      []int    // units of each weight; nil: each unit has a row tile of every weight
	fewRing      bool     // the op has the kernel of one row over quantised weights with a ring (codes_ring.cuh)
	takesCodes   bool     // it has kernels of few rows over quantised weights that are handed over (codes_handover.cuh)
	before       Exchange // that of in, if a spreading product takes it
	leaves       int      // SMs that the next kernel would begin on; a product of few rows over codes leaves them (smsOf)
}

// launch launches p's kernel; args is the op's own argument struct.
func launch[T any](q *cuda.Queue, p productLaunch, args T) error {
	if p.generated > 0 {
		return launchMixed(q, p, args)
	}
	if p.class == Prefill && streamsCodes(p.weights) && p.canRound(q) && p.canStreamK() {
		return launchStreamKCodes(q, p, args)
	}
	if anyQuantised(p.weights) {
		return launchCodes(q, p, args)
	}
	kind, err := elementsOf(p.weights...)
	if err != nil {
		return err
	}
	if p.class == Prefill && p.canRound(q) {
		if p.canStreamK() {
			return launchStreamK(q, p, kind, args)
		}
		if p.handover.InputIsRounded { // Fused epilogues run only on GPUs that reach this line.
			return fmt.Errorf("%w: %d rows of a prompt were left rounded, but there is no memory for split-K partials "+
				"or the outputs are no multiple of %d", device.ErrBadShape, p.in.n, tileRows)
		}
	}
	n, v := int(p.in.n), p.fewRows()
	if (v == nil || v == &skinny16) && p.canMany(q) {
		return launchMany(q, p, kind, args)
	}
	if v == nil && p.canRound(q) {
		r, err := p.round(q, kind)
		if err != nil {
			return err
		}
		v = wgmmaVariant(n, p.units*p.tiles, q.SMs())
		return cuda.Launch(q, p.name+kind+v.suffix, v.grid(n, p.units, p.tiles), wgmmaArgs[T]{args, r})
	}
	if v == nil {
		v = tiledVariant(n)
	}
	g := v.grid(n, p.units, p.tiles)
	g.X = min(g.X, p.maxBlocks(v, q.SMs()))
	if v == &gemv {
		g.Shared = p.rowBytes()
	}
	return cuda.Launch(q, p.name+kind+v.suffix, g, args)
}

// fewRows returns the variant for p if it has few rows, or nil.
func (p productLaunch) fewRows() *variant {
	v := fewRowsVariant(int(p.in.n))
	if v == &gemv && p.rowBytes() > gemvShared {
		v = &skinny8
	}
	return v
}

// gathered reports whether the rows come from a list, in which padding comes last.
func (p productLaunch) gathered() bool { return p.in.rows != 0 }

// maxBlocks returns how many blocks of v are launched at most on sms SMs.
func (p productLaunch) maxBlocks(v *variant, sms int) int {
	perSM := 0
	switch v {
	case &gemv:
		perSM = p.persistent.gemv
	case &skinny8:
		perSM = p.persistent.skinny8
	}
	if perSM == 0 {
		return math.MaxInt32
	}
	return min(perSM*sms, tune.MaxPersistentBlocks)
}

// rowBytes returns the dynamic shared memory of gemv.
func (p productLaunch) rowBytes() int { return gemvRowBytes(int(p.in.cols), p.in.norm != 0) }

// wholeTiles reports whether the outputs of each weight are whole row tiles.
func (p productLaunch) wholeTiles() bool {
	for _, w := range p.weights {
		if w.Rows%tileRows != 0 {
			return false
		}
	}
	return true
}

// canRound reports whether the GPU has kernels that read rounded activations, and the op
// has the memory for them.
func (p productLaunch) canRound(q *cuda.Queue) bool {
	return canRound(q, p.workspace.Rounded, int(p.in.n), int(p.in.cols))
}

// canRound reports whether a product over n rows of cols columns can read them rounded.
func canRound(q *cuda.Queue, workspace device.Buffer, n, cols int) bool {
	return hopper(q) && workspace.Bytes() >= RoundedBytes(n, cols)
}

// round launches the kernel that rounds p's input rows.
func (p productLaunch) round(q *cuda.Queue, kind string) (roundedInput, error) {
	r := roundedAt(q.Address(p.workspace.Rounded), int(p.in.n), int(p.in.cols))
	return r, cuda.Launch(q, "reel_round"+kind, cuda.Grid{X: int(r.tokens), Threads: 256,
		Dependent: tune.DependentLaunch},
		roundArgs{in: p.in, out: r.rows, scales: r.scales, tokens: r.tokens})
}

// roundedAt returns the addresses of n rounded rows of cols columns in a [Workspace].Rounded.
func roundedAt(workspace uint64, n, cols int) roundedInput {
	tokens := (n + 7) &^ 7
	return roundedInput{rows: workspace, scales: workspace + uint64(tokens*((cols+63)&^63)*2), tokens: int32(tokens)}
}

// elementsOf returns the part of a kernel's name that says the weights' type.
func elementsOf(weights ...Weight) (string, error) {
	if !arePacked(weights...) {
		return "", fmt.Errorf("%w: the weights of an op must be packed, and all bfloat16 or all float16",
			device.ErrBadShape)
	}
	return formats[weights[0].DType].kernel, nil
}
