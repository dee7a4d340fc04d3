//go:build cuda

package kernels

import (
	"cmp"
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
	"reel.internal/reel/kernels/internal/tune"
)

const perLayerThreads = 128 // PER_LAYER_THREADS of per_layer.cu

// CUDA launches blocks for each row.
func (o PerLayerGate) CUDA(q *cuda.Queue) error {
	if o.Cols%4 != 0 {
		return fmt.Errorf("%w: inputs of layers of %d elements, which must be a multiple of 4", device.ErrBadShape, o.Cols)
	}
	linear, cubic := o.Activation.exponent()
	g := cuda.Grid{X: o.T, Y: splitsOf(o.Cols, 4*perLayerThreads), Threads: perLayerThreads, Dependent: tune.DependentLaunch}
	return cuda.Launch(q, "reel_per_layer_gate", g, perLayerGateArgs{x: q.Address(o.X),
		inputs: q.Address(o.Inputs) + 4*uint64(o.Layer*o.Cols), rows: q.Address(o.RowIndex),
		pitch: int64(o.Layers) * int64(o.Cols), cols: int32(o.Cols), scale: cmp.Or(o.Scale, 1), linear: linear, cubic: cubic})
}
