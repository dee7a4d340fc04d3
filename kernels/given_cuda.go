//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

const givenThreads = 64

// CUDA launches a thread per row.
func (o Given) CUDA(q *cuda.Queue) error {
	at, masked := q.Address, o.Slots.masked(q)
	g := cuda.Grid{X: splitsOf(o.T, givenThreads), Threads: givenThreads, Dependent: true}
	return cuda.Launch(q, "reel_given", g, givenArgs{
		slot: at(o.Rows.Slot), position: at(o.Rows.Position), tokens: at(o.Tokens), token: at(o.Rows.Token),
		history: at(o.Slots.History), masked: masked, t: int32(o.T), queries: int32(o.Queries), context: int32(o.Slots.Context),
		trash: int32(o.Slots.Count - 1), stride: ParamWords,
	})
}
