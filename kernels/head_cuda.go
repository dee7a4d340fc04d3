//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// CUDA launches a product over the sampled rows. A prefill pass mostly samples one row, and the
// kernel for one row is faster than the one for up to eight by a quarter (notes/stream_k.md). So
// there the first sample has a launch of its own, and the others, if any, read the weights again.
func (o Head) CUDA(q *cuda.Queue) error {
	if err := o.products(q); err != nil || o.Softcap == 0 {
		return err
	}
	g := cuda.Grid{X: (o.W.Rows + elementThreads - 1) / elementThreads, Y: o.N, Threads: elementThreads,
		Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_softcap", g, softcapArgs{logits: q.Address(o.Logits), sample: q.Address(o.Rows.Sample),
		vocab: int32(o.W.Rows), limit: o.Softcap})
}

func (o Head) products(q *cuda.Queue) error {
	if o.Class == Decode || o.N == 1 {
		return o.launch(q, 0, o.N)
	}
	if err := o.launch(q, 0, 1); err != nil {
		return err
	}
	return o.launch(q, 1, o.N-1)
}

// launch launches a product over n samples, from number first on. It is of the decode class in
// every pass.
func (o Head) launch(q *cuda.Queue, first, n int) error {
	in := activations{x: q.Address(o.X), norm: q.Address(o.Norm), rows: q.Address(o.Rows.Sample) + uint64(4*first),
		cols: int32(o.W.Cols), n: int32(n), eps: o.Eps}
	p := productLaunch{
		name: "reel_head", in: in, units: tilesOf(o.W.Rows), tiles: 1, persistent: persistent{2, 2},
		class: Decode, workspace: o.Workspace, gathered: o.Class == Prefill, weights: []Weight{o.W},
	}
	args := headArgs{w: q.Address(o.W.Data), in: in, logits: q.Address(o.Logits) + uint64(4*first*o.W.Rows),
		vocab: int32(o.W.Rows)}
	if o.Tags.areUsed(q) {
		// Stage writes the row to be sampled, and this kernel waits for no other: it takes the one row there is.
		args.in.rows = 0
		return launchTagged(q, p, o.Tags, 0, args)
	}
	return launch(q, p, args)
}
