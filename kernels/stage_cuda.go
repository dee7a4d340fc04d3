//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

func (s Slots) addresses(q *cuda.Queue) slotArgs {
	return slotArgs{q.Address(s.BlockTable), q.Address(s.Length), q.Address(s.Token), q.Address(s.History),
		q.Address(s.Params)}
}

// masked returns the address of the first slot's word of [Slots.isMasked]; those of the others are ParamWords apart.
func (s Slots) masked(q *cuda.Queue) uint64 { return q.Address(s.Params) + 4*maskedParam }

// CUDA launches one block: the work is small, and sequential.
func (o Stage) CUDA(q *cuda.Queue) error {
	threads := min(1024, max(64, (3*o.T+31)/32*32))
	g := cuda.Grid{X: 1, Threads: threads, Shared: o.sharedBytes(), Dependent: true}
	return cuda.Launch(q, "reel_stage", g, stageArgs{
		ring: q.Address(o.Ring), counter: q.Address(o.Counter), slots: o.Slots.addresses(q),
		slot: q.Address(o.Rows.Slot), position: q.Address(o.Rows.Position), token: q.Address(o.Rows.Token),
		sample: q.Address(o.Rows.Sample), number: q.Address(o.Rows.Number),
		ringSlots: int32(o.RingSlots), words: int32(o.Layout.Words()), sampleAt: int32(o.Layout.sampleAt()),
		initAt: int32(o.Layout.initAt()), pageAt: int32(o.Layout.pageAt()),
		count: int32(o.Slots.Count), pages: int32(o.Slots.Pages), context: int32(o.Slots.Context),
		t: int32(o.T), n: int32(o.N),
	})
}
