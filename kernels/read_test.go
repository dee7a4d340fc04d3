package kernels

import (
	"errors"
	"math/rand/v2"
	"testing"

	"reel.internal/reel/kernels/device"
)

func TestRead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	h := device.NewHost(device.HostOptions{})
	defer h.Close()
	for _, n := range []int{4, 8, 36, 1 << 20} { // words
		words, want := make([]uint32, n), uint32(7)
		for i := range words {
			words[i] = r.Uint32()
			want ^= words[i]
		}
		data, _ := h.Load(bytesOfWords(words))
		out, _ := h.Alloc(4)
		h.Int32(out)[0] = 7
		op := Read{Data: data, Out: out}
		if err := op.Check(); err != nil {
			t.Fatal(err)
		}
		op.Host(h)
		if got := uint32(h.Int32(out)[0]); got != want {
			t.Errorf("%d words: %#x, wants %#x", n, got, want)
		}
		for _, bad := range []Read{{Data: data.Slice(0, 12), Out: out}, {Data: data, Out: out.Slice(0, 2)},
			{Out: out}} {
			if err := bad.Check(); !errors.Is(err, device.ErrBadShape) {
				t.Errorf("%d bytes into %d: %v", bad.Data.Bytes(), bad.Out.Bytes(), err)
			}
		}
	}
}

// bytesOfWords returns words in little-endian order.
func bytesOfWords(words []uint32) (b []byte) {
	for _, w := range words {
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	return b
}
