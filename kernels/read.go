package kernels

import (
	"fmt"
	"sync"
	"unsafe"

	"reel.internal/reel/kernels/device"
)

// Read only reads a buffer: its rate is the limit of every memory-bound op. It XORs all words
// of Data into Out[0], which is the same in any order.
type Read struct {
	Data device.Buffer // uint32 [n], n a multiple of 4
	Out  device.Buffer // in and out: uint32 [1]
}

// Kernel returns "read".
func (Read) Kernel() string { return "read" }

// Check compares dimensions.
func (o Read) Check() error {
	if o.Data.Bytes() < 16 || o.Data.Bytes()%16 != 0 || o.Out.Bytes() < 4 {
		return fmt.Errorf("%w: read of %d bytes into %d", device.ErrBadShape, o.Data.Bytes(), o.Out.Bytes())
	}
	return nil
}

// Host reads on the host.
func (o Read) Host(h *device.Host) {
	data, out := h.Bytes(o.Data), h.Int32(o.Out)
	var one sync.Mutex
	h.For(len(data)/16, len(data)/4, func(begin, end int) {
		x := xor(data[16*begin : 16*end])
		one.Lock()
		defer one.Unlock()
		out[0] ^= int32(x)
	})
}

// xor returns the XOR of a multiple of 4 words. Eight independent chains hide the latency of each.
func xor(data []byte) uint32 {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/8)
	var s [8]uint64
	for ; len(words) >= 8; words = words[8:] {
		s[0], s[1], s[2], s[3] = s[0]^words[0], s[1]^words[1], s[2]^words[2], s[3]^words[3]
		s[4], s[5], s[6], s[7] = s[4]^words[4], s[5]^words[5], s[6]^words[6], s[7]^words[7]
	}
	for _, w := range words {
		s[0] ^= w
	}
	x := s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7]
	return uint32(x) ^ uint32(x>>32)
}
