//go:build cuda

package kernels

import (
	"fmt"

	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// CUDA refuses: there is no kernel yet.
func (o PerLayerGate) CUDA(*cuda.Queue) error {
	return fmt.Errorf("%w: embeddings of layers on a GPU", device.ErrBadShape)
}
