package convert

// tooSmall bounds the elements of a part, or the scales of a block, that count as zeros.
const tooSmall = 1e-15

// encodeQ6_K finds a scale for each part of 16 elements, rounds these to multiples of d, the extreme one over −128,
// and finds the codes with them: an element is d·scale·(code − 32). The layout is at the decoder, in package kernels.
func encodeQ6_K(block []byte, x []float32) {
	var codes [256]byte
	var scales [16]float32
	for p := range scales {
		scales[p] = fitPart((*[16]float32)(x[16*p:]), codes[16*p:])
	}
	most := extreme(scales[:])
	if abs(most) < tooSmall {
		return // zeros
	}
	inverse := -128 / most
	putHalf(block[208:], 1/inverse)
	d := halfValue(block[208:])
	for p, s := range scales {
		s := min(127, nearest(inverse*s))
		block[192+p] = byte(s)
		scale := d * float32(int8(s))
		if scale == 0 {
			continue // the codes of the fit stay
		}
		for j, v := range x[16*p:][:16] {
			codes[16*p+j] = byte(min(max(nearest(v/scale), -32), 31) + 32)
		}
	}
	packQ6_K(block, &codes)
}

// packQ6_K writes the codes: the low four bits of codes 64 apart together, and the high bits of four codes.
func packQ6_K(block []byte, codes *[256]byte) {
	for n := range 2 {
		c, low, high := codes[128*n:][:128], block[64*n:][:64], block[128+32*n:][:32]
		for j := range low {
			low[j] = c[j]&15 | c[j+64]<<4
		}
		for j := range high {
			high[j] = c[j]>>4 | c[j+32]>>4<<2 | c[j+64]>>4<<4 | c[j+96]>>4<<6
		}
	}
}

// fitPart returns the scale that gives 16 elements the least weighted squared error among some trials, and writes
// their codes, from 0 to 63. An element's weight is its square. Each trial rounds with another scale, and solves for
// the best one with these codes. (ggml: make_qx_quants.)
func fitPart(x *[16]float32, codes []byte) (scale float32) {
	most := extreme(x[:])
	if abs(most) < tooSmall {
		clear(codes[:16])
		return 0
	}
	inverse := -32 / most
	xl, l2 := partSums(x, inverse)
	if l2 != 0 {
		scale = xl / l2
	}
	best := scale * xl
	for step := -9; step <= 9; step++ {
		if step == 0 {
			continue
		}
		trial := -(32 + float32(0.1*float32(step))) / most
		xl, l2 := partSums(x, trial)
		if l2 > 0 && float32(xl*xl) > float32(best*l2) {
			inverse, scale = trial, xl/l2
			best = scale * xl
		}
	}
	for j, v := range x {
		codes[j] = byte(partCode(v*inverse) + 32)
	}
	return scale
}

// partCode rounds to a code from −32 to 31.
func partCode(v float32) int { return min(max(nearest(v), -32), 31) }

// partSums returns the weighted sums of element times code, and of code squared.
func partSums(x *[16]float32, inverse float32) (xl, l2 float32) {
	for _, v := range x {
		l := float32(partCode(inverse * v))
		w := float32(v * v)
		xl += float32(float32(w*v) * l)
		l2 += float32(float32(w*l) * l)
	}
	return xl, l2
}
