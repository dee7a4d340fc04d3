//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

// CUDA launches a warp per group.
func (o Accept) CUDA(q *cuda.Queue) error {
	at, slots := q.Address, o.Slots.addresses(q)
	return cuda.Launch(q, "reel_accept", cuda.Grid{X: o.T / o.Queries, Threads: 32, Dependent: true}, acceptArgs{
		slot: at(o.Rows.Slot), position: at(o.Rows.Position), token: at(o.Rows.Token), sample: at(o.Rows.Sample),
		drawn: at(o.Rows.Drawn), number: at(o.Rows.Number), last: slots.token, length: slots.length,
		results: at(o.Records), t: int32(o.T), queries: int32(o.Queries), ringSlots: int32(o.RingSlots),
		maxSamples: int32(o.MaxSamples),
	})
}
