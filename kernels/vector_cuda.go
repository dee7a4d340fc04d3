//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

// vectorThreads is VECTOR_THREADS of vector.cu.
const vectorThreads = 256

// CUDA launches a block per sample. It reads four columns at a time; [CheckPacked] refuses a model whose rows are no
// multiple of that.
func (o Vector) CUDA(q *cuda.Queue) error {
	if o.Cols%4 != 0 {
		return fmt.Errorf("%w: vectors of %d, which is no multiple of 4", device.ErrBadShape, o.Cols)
	}
	g := cuda.Grid{X: o.N, Threads: vectorThreads, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_vector", g, vectorArgs{x: q.Address(o.X), index: q.Address(o.Index),
		norm: q.Address(o.Norm), sample: q.Address(o.Rows.Sample), slot: q.Address(o.Rows.Slot),
		number: q.Address(o.Rows.Number), params: q.Address(o.Slots.Params), results: q.Address(o.Records),
		vectors: q.Address(o.Vectors), cols: int32(o.Cols), ringSlots: int32(o.RingSlots),
		maxSamples: int32(o.MaxSamples), eps: o.Eps})
}
