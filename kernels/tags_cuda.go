//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// areUsed reports whether an op's values are tagged: on Hopper, for which there are kernels.
func (t Tags) areUsed(q *cuda.Queue) bool { return !t.Pass.IsZero() && hopper(q) && tune.Tagged }

// activationsOfCodes is what kernels multiply activations by before they round them for codes: ACTIVATIONS of
// gemm/codes_rows.cuh.
const activationsOfCodes = 0x1p64

func (t Tags) args(q *cuda.Queue) tagsArgs {
	a := tagsArgs{pass: q.Address(t.Pass), in: q.Address(t.In), out: q.Address(t.Out), taken: int32(t.Taken),
		given: int32(t.Given), scale: 1}
	if t.ForCodes {
		a.scale = activationsOfCodes
	}
	return a
}

// rankArgs returns those of one of several GPUs. It gives its part of Out, of so many values or pairs, to all of them;
// with 0 it keeps its results.
func (t Tags) rankArgs(q *cuda.Queue, part int) rankTagsArgs {
	a := rankTagsArgs{tags: t.args(q), last: flag(q.Rank() == t.Ranks-1)}
	if part == 0 {
		return a
	}
	for rank := range t.Ranks {
		if rank != q.Rank() {
			a.away[a.peers] = int64(q.PeerAddress(rank, t.Out) - q.Address(t.Out))
			a.peers++
		}
	}
	a.tags.out += uint64(TagBytes(q.Rank() * part))
	return a
}

// launchTagged launches a product of one row whose values are tagged. Where several GPUs share the pass, all of them
// get its `part` results, if it has any for them.
func launchTagged[T any](q *cuda.Queue, p productLaunch, t Tags, part int, args T) error {
	if anyQuantised(p.weights) {
		return launchTaggedCodes(q, p, t, args)
	}
	g := gemv.grid(1, p.units, p.tiles)
	g.X, g.Shared = min(g.X, p.maxBlocks(&gemv, q.SMs())), p.rowBytes()
	if t.Ranks > 0 {
		return cuda.Launch(q, p.name+"_tagged_ranks", g, rankArgs[T]{args, t.rankArgs(q, part)})
	}
	return cuda.Launch(q, p.name+"_tagged", g, taggedArgs[T]{args, t.args(q)})
}

// launchTaggedCodes launches one over quantised weights: a kernel for each run of units whose weights have one format. Of
// these the one with unit 0 comes first: it alone may wait for what came before the pass.
func launchTaggedCodes[T any](q *cuda.Queue, p productLaunch, t Tags, args T) error {
	runs, err := p.runs()
	if err != nil {
		return err
	}
	for _, r := range runs {
		k, err := p.fewCodes(q, r, true, false)
		if err != nil {
			return err
		}
		a := codesArgs[taggedArgs[T]]{op: taggedArgs[T]{args, t.args(q)}, first: int32(r.first), units: int32(r.units),
			atOnce: int32(k.rows), stages: int32(k.stages)}
		if err := cuda.Launch(q, p.name+formats[r.format].kernel+"_tagged", k.grid, a); err != nil {
			return err
		}
	}
	return nil
}
