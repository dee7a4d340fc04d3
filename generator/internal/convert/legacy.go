package convert

import "encoding/binary"

// The formats with blocks of 32 elements. Their layouts are at their decoders, in package kernels.

// encodeQ8_0 rounds the elements to multiples of the largest over 127.
func encodeQ8_0(block []byte, x []float32) {
	d := abs(extreme(x)) / 127
	id := inverse(d)
	putHalf(block, d)
	for j, v := range x {
		block[2+j] = byte(rounded(float32(v * id)))
	}
}

// rounded returns the integer nearest to v, halves away from zero, and 0 of a NaN or an infinity.
func rounded(v float32) int {
	n := truncated(v)
	switch rest := v - float32(n); {
	case rest >= 0.5 && rest < 1:
		return n + 1
	case rest <= -0.5 && rest > -1:
		return n - 1
	}
	return n
}

// truncated returns the integer part of v, and 0 of a NaN or an infinity, which come from blocks with a scale of
// zero in binary16.
func truncated(v float32) int {
	if !(abs(v) < 1<<15) {
		return 0
	}
	return int(v)
}

// encodeQ4_0 gives the extreme element the code 0, which is −8 times the scale.
func encodeQ4_0(block []byte, x []float32) {
	d := extreme(x) / -8
	id := inverse(d)
	putHalf(block, d)
	code := func(v float32) byte {
		return byte(min(max(truncated(float32(v*id)+8.5), 0), 15))
	}
	for j := range 16 {
		block[2+j] = code(x[j]) | code(x[j+16])<<4
	}
}

// encodeQ5_0 is Q4_0 with five bits.
func encodeQ5_0(block []byte, x []float32) {
	d := (0 + extreme(x)) / -16 // the sum of 0 and −0 is 0: the reference's scale of zeros is −0
	id := inverse(d)
	putHalf(block, d)
	putFives(block[2:], x, func(v float32) int { return truncated(float32(v*id) + 16.5) })
}

// encodeQ5_1 has codes of the distance from the least element.
func encodeQ5_1(block []byte, x []float32) {
	least, most := bounds((*[groupSize]float32)(x))
	d := (most - least) / 31
	id := inverse(d)
	putHalf(block, d)
	putHalf(block[2:], least)
	putFives(block[4:], x, func(v float32) int { return truncated(float32((v-least)*id) + 0.5) })
}

// putFives writes codes of 0 to 31: their highest bits, then the others.
func putFives(b []byte, x []float32, code func(float32) int) {
	high := uint32(0)
	for j, v := range x {
		c := uint32(min(max(code(v), 0), 31))
		high |= c >> 4 << j
		b[4+j%16] |= byte(c & 15 << (j / 16 * 4))
	}
	binary.LittleEndian.PutUint32(b, high)
}
