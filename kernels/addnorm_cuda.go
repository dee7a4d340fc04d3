//go:build cuda

package kernels

import (
	"cmp"
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

const addNormThreads = 256 // ADD_NORM_THREADS of addnorm.cu

// CUDA launches a block per row.
func (o AddNorm) CUDA(q *cuda.Queue) error {
	if o.Cols%4 != 0 {
		return fmt.Errorf("%w: rows of %d, which must be a multiple of 4", device.ErrBadShape, o.Cols)
	}
	g := cuda.Grid{X: o.T, Threads: addNormThreads, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_addnorm", g, addNormArgs{branch: q.Address(o.Branch), norm: q.Address(o.Norm),
		rows: q.Address(o.RowIndex), x: q.Address(o.X), cols: int32(o.Cols), eps: o.Eps, scale: cmp.Or(o.Scale, 1),
		stores: flag(o.Store)})
}
