//go:build cuda

package cudatest

import (
	"testing"

	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

func TestCUDARead(t *testing.T) {
	b := newBoth(t)
	for _, n := range []int{4, 36, 4 * 257, 4_000_012} { // words
		words := make([]uint32, n)
		for i := range words {
			words[i] = b.r.Uint32()
		}
		x, out := put(b, words), put(b, []uint32{7})
		b.run(func(on int) device.Op { return kernels.Read{Data: x[on], Out: out[on]} })
		b.same("read", out)
	}
}

// BenchmarkCUDARead reads more than any cache holds: the limit of all memory-bound ops.
func BenchmarkCUDARead(t *testing.B) {
	b := newBoth(t)
	const bytes = 4 << 30
	x, err := b.g.Alloc(bytes)
	b.must(err)
	defer func() { b.must(b.g.Free(x)) }()
	b.perLaunch(t, bytes, kernels.Read{Data: x, Out: b.load(1, make([]byte, 4))})
}
