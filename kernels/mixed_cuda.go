//go:build cuda

package kernels

import (
	"fmt"
	"strconv"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// launchMixed launches the kernel of a mixed pass for p, whose first generated rows are of the decode class.
func launchMixed[T any](q *cuda.Queue, p productLaunch, args T) error {
	kind, err := elementsOf(p.weights...)
	if err != nil {
		return p.refuseMixed()
	}
	n, shape := int(p.in.n), sliceShapeOf(p.units*p.tiles, int(p.in.cols), true)
	k := mixedKernelOf(int(p.generated))
	if k == nil || n-k.generated > k.prompts || !p.canRound(q) || !shape.mixes() || !p.wholeTiles() ||
		p.workspace.Partials.Bytes() < shape.mixedBytes(k) {
		return p.refuseMixed()
	}
	prompts, err := p.input(q, kind)
	if err != nil {
		return err
	}
	generated := prompts
	if generated.squares > 0 {
		generated.squares = -1 // the kernel computes their scales
	}
	arrivals, sums := exchangeAt(q.Address(p.workspace.Partials), k.prompts)
	handover := p.epilogue(q, n)
	plan := shape.args(1, splitsOf(n-k.generated, 8)*8)
	plan.rounds, plan.endUnit = 1, int32(p.units)
	a := mixedArgs[T]{
		prompts: streamKArgs[T]{op: args, rounded: prompts, handover: handover, partials: sums,
			arrivals: arrivals, plan: plan},
		generated: manyArgs[T]{op: args, rounded: generated, handover: handover, plan: plan,
			sums:     sums + uint64(4*streamKTiles*tileRows*shape.slices*k.prompts),
			arrivals: arrivals + uint64(8*shape.slices)},
	}
	a.generated.plan.tokens = int32(k.generated)
	g := cuda.Grid{X: 1, Y: shape.slices, Threads: 384, Shared: k.shared(), Dependent: tune.DependentLaunch}
	return cuda.Launch(q, p.name+kind+"_mixed"+strconv.Itoa(k.generated), g, a)
}

// refuseMixed refuses generated rows in a product that has no kernel for them.
func (p productLaunch) refuseMixed() error {
	return fmt.Errorf("%w: no kernel of mixed passes for %s with %d generated rows of %d", device.ErrBadShape, p.name,
		p.generated, p.in.n)
}
