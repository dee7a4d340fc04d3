package model_test

import (
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Models in each quantised format on the host are compared with transformers in float32 on the values of their weights.
// There both errors are those of float32 sums.
func TestFormatsEqualTransformers(t *testing.T) {
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	equalTransformers(t, h, kernels.F32)
}
