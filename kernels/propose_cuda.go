//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

const proposeThreads = 1024 // PROPOSE_THREADS of propose.cu

// CUDA launches a block per group.
func (o Propose) CUDA(q *cuda.Queue) error {
	at := q.Address
	g := cuda.Grid{X: o.T / o.Queries, Threads: proposeThreads, Dependent: true}
	tokens := uint64(0)
	if !o.Tokens.IsZero() {
		tokens = at(o.Tokens)
	}
	return cuda.Launch(q, "reel_propose", g, proposeArgs{
		logits: at(o.Logits), tokens: tokens, slot: at(o.Rows.Slot), position: at(o.Rows.Position),
		token: at(o.Rows.Token), history: at(o.Slots.History), queries: int32(o.Queries), draft: int32(o.Draft), cols: int32(o.Cols),
		vocab: int32(o.Vocab), context: int32(o.Slots.Context), trash: int32(o.Slots.Count - 1),
	})
}
