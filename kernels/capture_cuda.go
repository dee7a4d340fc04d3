//go:build cuda

package kernels

import (
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

const captureThreads = 256 // CAPTURE_THREADS of capture.cu, JOIN_THREADS of join.cu

// CUDA launches a block per row.
func (o Capture) CUDA(q *cuda.Queue) error {
	g := cuda.Grid{X: o.T, Threads: captureThreads, Dependent: tune.DependentLaunch}
	args := captureArgs{x: q.Address(o.X), features: q.Address(o.Features) + uint64(4*o.Part*o.Cols),
		cols: int32(o.Cols), width: int32(o.Parts * o.Cols), zeroCols: int32(o.ZeroCols), eps: o.Eps}
	if !o.Norm.IsZero() {
		args.norm = q.Address(o.Norm)
	}
	if !o.Zero.IsZero() {
		args.zero = q.Address(o.Zero)
	}
	return cuda.Launch(q, "reel_capture", g, args)
}
