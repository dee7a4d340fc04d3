//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// areUsed reports whether an op's values are tagged: on Hopper, for which there are kernels.
func (t Tags) areUsed(q *cuda.Queue) bool { return !t.Pass.IsZero() && hopper(q) && tune.Tagged }

func (t Tags) args(q *cuda.Queue) tagsArgs {
	return tagsArgs{pass: q.Address(t.Pass), in: q.Address(t.In), out: q.Address(t.Out), taken: int32(t.Taken),
		given: int32(t.Given), first: flag(t.First)}
}

// launchTagged launches a product of one row whose values are tagged.
func launchTagged[T any](q *cuda.Queue, p productLaunch, t Tags, args T) error {
	g := gemv.grid(1, p.units, p.tiles)
	g.X, g.Shared = min(g.X, p.maxBlocks(&gemv, q.SMs())), p.rowBytes()
	return cuda.Launch(q, p.name+"_tagged", g, taggedArgs[T]{args, t.args(q)})
}
