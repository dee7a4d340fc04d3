//go:build cuda

package kernels

import "reel.internal/reel/kernels/device/cuda"

const draftRowsThreads = 64

// CUDA launches a thread per row.
func (o DraftRows) CUDA(q *cuda.Queue) error {
	at, slots := q.Address, o.Slots.addresses(q)
	rows, _ := o.rows()
	g := cuda.Grid{X: splitsOf(rows, draftRowsThreads), Threads: draftRowsThreads, Dependent: true}
	return cuda.Launch(q, "reel_draftrows", g, draftRowsArgs{
		ofSlot: at(o.Of.Slot), ofPosition: at(o.Of.Position), ofToken: at(o.Of.Token), ofSample: at(o.Of.Sample),
		history: slots.history, params: slots.params, slot: at(o.Rows.Slot), position: at(o.Rows.Position),
		token: at(o.Rows.Token), sample: at(o.Rows.Sample), rows: int32(rows), queries: int32(o.Queries),
		draft: int32(o.Draft), vocab: int32(o.Vocab), context: int32(o.Slots.Context), single: word(o.Single),
	})
}
