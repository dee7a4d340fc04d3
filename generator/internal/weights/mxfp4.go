package weights

import (
	"encoding/binary"
	"fmt"
)

// Microscaling4 returns a matrix of MXFP4 from codes of E2M1, U8 [rows][cols/2] with the even column in the low bits,
// and exponents with the bias 127, U8 [rows][cols/32]. (compressed-tensors: mxfp4-pack-quantized; OCP Microscaling
// Formats, 2023.) GGUF's blocks, which it makes, have columns j and j+16 in one byte. Errors: ErrQuantised.
func Microscaling4(codes, exponents Tensor) (Tensor, error) {
	rows, bytes, err := codes.matrix(U8)
	if err != nil {
		return Tensor{}, err
	}
	if bytes%16 != 0 {
		return Tensor{}, codes.refuse("it has %d columns, wants a multiple of 32: take the model in BF16", 2*bytes)
	}
	if err := exponents.wants([]int{rows, bytes / 16}, U8); err != nil {
		return Tensor{}, err
	}
	return converted(MXFP4, rows, 2*bytes, []Tensor{codes, exponents}, func(dst []byte, first int) error {
		for i := first * bytes / 16; len(dst) > 0; i++ {
			e, block := exponents.Data[i], codes.Data[16*i:][:16]
			if e > mostExponent {
				return fmt.Errorf("weights: %s: tensor %.80q: element %d is %w", exponents.File, exponents.Name, i,
					ErrNotFinite)
			}
			dst[0] = e
			putApart(dst[1:], binary.LittleEndian.Uint64(block), binary.LittleEndian.Uint64(block[8:]))
			dst = dst[17:]
		}
		return nil
	}), nil
}

// Apart copies blocks of MXFP4, and changes those in which a byte has columns 2j and 2j+1 to GGUF's. See
// [Tensor.Adjacent].
func Apart(dst, src []byte) {
	for ; len(src) > 0; dst, src = dst[17:], src[17:] {
		dst[0] = src[0]
		putApart(dst[1:], binary.LittleEndian.Uint64(src[1:]), binary.LittleEndian.Uint64(src[9:]))
	}
}

// putApart writes 16 codes of a, two to a byte, to the low bits of 16 bytes, and those of b to the high bits.
func putApart(dst []byte, a, b uint64) {
	const low = 0x0f0f_0f0f_0f0f_0f0f
	even, odd := a&low|b&low<<4, a>>4&low|b&^low
	binary.LittleEndian.PutUint64(dst, everySecond(even)|everySecond(odd)<<8)
	binary.LittleEndian.PutUint64(dst[8:], everySecond(even>>32)|everySecond(odd>>32)<<8)
}

// everySecond returns the low four bytes of x as the even ones of eight.
func everySecond(x uint64) uint64 {
	x &= 0xffff_ffff
	x = (x | x<<16) & 0x0000_ffff_0000_ffff
	return (x | x<<8) & 0x00ff_00ff_00ff_00ff
}
