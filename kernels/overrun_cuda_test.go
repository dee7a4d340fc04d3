//go:build cuda

package kernels

import (
	"testing"

	"reel/kernels/device"
)

// Writes one element past a buffer, which does no harm by itself: the driver
// gives out memory by 512 bytes. Run by compute-sanitizer it must be reported.
func TestCUDAPlantedOverrun(t *testing.T) {
	b := newBoth(t)
	number, id, _ := b.load(1, make([]byte, 4*33)).Handle()
	b.onGPU(Fill{Data: device.NewBuffer(number, id, 4*34)})
}
