//go:build cuda

package model_test

import (
	"path/filepath"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/kernels"
	images "reel.internal/reel/kernels/cuda"
	gpu "reel.internal/reel/kernels/device/cuda"
)

// Every family on a GPU is compared with transformers in float32 on the same weights.
func TestGPUFamiliesEqualTransformers(t *testing.T) {
	d := openGPU(t)
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			c, w := checkpoint(t, name)
			m, err := model.Load(d, c, w, func(float64) {})
			if err != nil {
				t.Fatal(err)
			}
			equalsInBFloat16(t, d, m, filepath.Join("testdata", name), 5, kernels.BF16)
			if err := m.Free(d); err != nil {
				t.Error(err)
			}
		})
	}
}

// EAGLE-3 heads on a GPU, in bfloat16, draft what the plain implementation in float32 drafts, but for near ties.
func TestGPUEagleEqualsReference(t *testing.T) {
	d := openGPU(t)
	for _, name := range eagleHeads {
		t.Run(name, func(t *testing.T) { equalsEagle(t, d, name, kernels.BF16, asTheyAre, 0.85) })
	}
}

// A model for embeddings on a GPU is compared with sentence-transformers in float32 on the same weights: vectors are
// within 2e-2 relative, and chunks of any size give the same bits.
func TestGPUEmbeddingsEqualSentenceTransformers(t *testing.T) {
	d := openGPU(t)
	c, w := openEmbedder(t)
	m, err := model.Load(d, c, w, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("vectors differ by %.1e relative at most", compareEmbeddings(t, d, m, kernels.BF16, 2e-2))
	if err := m.Free(d); err != nil {
		t.Error(err)
	}
}

// openGPU opens the first GPU until the test ends.
func openGPU(t *testing.T) *gpu.Device {
	t.Helper()
	d, err := gpu.New(0, images.Kernels)
	if err != nil {
		t.Fatalf("this test wants an NVIDIA GPU: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Models in each quantised format on a GPU are compared with transformers in float32 on the values of their weights.
func TestGPUFormatsEqualTransformers(t *testing.T) { equalTransformers(t, openGPU(t), kernels.BF16) }
