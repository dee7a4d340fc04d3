//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// exchangeThreads is EXCHANGE_THREADS of exchange.cu.
const exchangeThreads = 512

// CUDA launches as many blocks on every rank, since a block waits for the same one of the others.
func (o Exchange) CUDA(q *cuda.Queue) error {
	name, elements := "reel_exchange", o.T*o.PartCols/4
	if o.PartCols%4 != 0 || o.Width%4 != 0 {
		name, elements = "reel_exchange1", o.T*o.PartCols
	}
	args := exchangeArgs{part: q.Address(o.Part), x: q.Address(o.X), bias: q.Address(o.Bias),
		epochs: q.Address(o.Signals.Epochs), progress: q.Address(o.Signals.Progress), rows: int32(o.T),
		width: int32(o.Width), partCols: int32(o.PartCols), ranks: int32(o.Ranks), rank: int32(q.Rank())}
	for peer := range o.Ranks {
		args.all[peer], args.flags[peer] = q.PeerAddress(peer, o.All), q.PeerAddress(peer, o.Signals.Flags)
	}
	g := cuda.Grid{X: min(device.SignalBlocks, splitsOf(elements, exchangeThreads)), Threads: exchangeThreads,
		Dependent: tune.DependentLaunch}
	return cuda.Launch(q, name, g, args)
}
