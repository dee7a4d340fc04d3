//go:build cuda

package cudatest

import (
	"os"
	"testing"

	"reel.internal/reel/kernels"
	images "reel.internal/reel/kernels/cuda"
	"reel.internal/reel/kernels/device"
	"reel.internal/reel/kernels/device/cuda"
)

// Writes one element past a buffer. This does no harm by itself, because the driver allocates
// multiples of 512 bytes. Compute-sanitizer's memcheck must report it.
func TestCUDAPlantedOverrun(t *testing.T) {
	b := newBoth(t)
	number, id, _ := b.load(1, make([]byte, 4*33)).Handle()
	b.onGPU(kernels.Fill{Data: device.NewBuffer(number, id, 4*34)})
}

// Copies a page that was never written. Compute-sanitizer's initcheck must report it.
func TestCUDAPlantedUnwritten(t *testing.T) {
	b := newBoth(t)
	kv := kernels.KV{DType: kernels.BF16, Pages: 2, PageTokens: 16, Layers: 1, Heads: 1, HeadDim: 32}
	var err error
	kv.Data, err = b.g.Uncleared(int64(kv.Pages) * kv.PageBytes())
	b.must(err)
	b.onGPU(kernels.CopyPage{KV: kv, From: 0, To: 1})
	b.must(b.g.Free(kv.Data))
}

// Attends with a kernel that lacks a barrier, and ignores the result. Compute-sanitizer's
// racecheck must report it.
func TestCUDAPlantedRace(t *testing.T) {
	a := newAttending(bothOf(t, "racing"), 2, 1, 64, 300)
	a.attend([]int{0, len(a.row) - 1}, 2, false)
}

// kernelsOf returns the kernels of another build.
func kernelsOf(t *testing.T, build string) *images.Images {
	t.Helper()
	kernels, err := images.OpenImages(os.DirFS("../../.build/cuda/" + build + "/images"))
	if err != nil {
		t.Fatalf("this test wants the kernels of make late-kernels: %v", err)
	}
	return kernels
}

// bothOf is newBoth with a build of the kernels that make late-kernels leaves under this name.
func bothOf(t *testing.T, build string) *both {
	t.Helper()
	g, err := cuda.New(0, kernelsOf(t, build))
	if err != nil {
		t.Fatalf("this test wants an NVIDIA GPU: %v", err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return bothWith(t, g)
}
