//go:build cuda

package engine

import (
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/cuda"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// TestGPUCheckFindsOverruns does as TestCheckFindsOverruns with kernels on a GPU, in GEMMs of few rows and of many.
func TestGPUCheckFindsOverruns(t *testing.T) {
	d, err := gpu.New(0, cuda.Kernels)
	if err != nil {
		t.Fatal(err)
	}
	c := microConfig()
	c.HeadDim = 32
	o := defaults()
	o.Precapture, o.MaxBatch, o.Pages, o.KVType, o.Context = []int{3, 20}, 2, 64, kernels.BF16, 256
	checkPlanted(t, d, c, o)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
