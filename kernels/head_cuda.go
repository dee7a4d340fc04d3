//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// CUDA launches a product over the sampled rows. It is of the decode class in every pass.
func (o Head) CUDA(q *cuda.Queue) error {
	if err := o.product(q); err != nil || o.Softcap == 0 {
		return err
	}
	g := cuda.Grid{X: (o.W.Rows + elementThreads - 1) / elementThreads, Y: o.N, Threads: elementThreads,
		Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_softcap", g, softcapArgs{logits: q.Address(o.Logits), sample: q.Address(o.Rows.Sample),
		vocab: int32(o.W.Rows), limit: o.Softcap})
}

func (o Head) product(q *cuda.Queue) error {
	in := activations{x: q.Address(o.X), norm: q.Address(o.Norm), rows: q.Address(o.Rows.Sample),
		cols: int32(o.W.Cols), n: int32(o.N), eps: o.Eps}
	p := productLaunch{
		name: "reel_head", in: in, units: tilesOf(o.W.Rows), tiles: 1, persistent: persistent{2, 2},
		class: Decode, workspace: o.Workspace, weights: []Weight{o.W},
	}
	args := headArgs{w: q.Address(o.W.Data), in: in, logits: q.Address(o.Logits), vocab: int32(o.W.Rows)}
	if o.Tags.areUsed(q) {
		// Stage writes the row to be sampled, and this kernel waits for no other: it takes the one row there is.
		args.in.rows = 0
		return launchTagged(q, p, o.Tags, 0, args)
	}
	return launch(q, p, args)
}
