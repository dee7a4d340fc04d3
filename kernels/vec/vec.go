// Package vec holds the inner loops of the host ops: dot products and scaled
// sums over contiguous rows. Each has one order of summation, stated here and
// the same in Go and in assembly, so that a sum depends on its operands alone:
// not on the machine, and not on how many rows are computed beside it.
//
// A dot product of n elements keeps 16 partial sums; element i is added to
// partial i mod 16, in the order of i. The partials are then folded by halves:
// p[i] += p[i+8], p[i] += p[i+4], p[i] += p[i+2], p[0] += p[1]. Elements past the
// last multiple of 16 are added to the result one by one. A product and its
// sum are rounded apart: no fused multiply-add.
package vec

import "math"

// lanes is how many partial sums a dot product keeps.
const lanes = 16

// BF16 is the float32 of bfloat16 bits.
func BF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// DotBF16 is the dot product of a row of bfloat16 weights and a vector of the same length.
func DotBF16(w []uint16, x []float32) float32 {
	x = x[:len(w)]
	n := len(w) &^ (lanes - 1)
	var s float32
	if n > 0 {
		s = dotBF16(w[:n], x[:n])
	}
	for i := n; i < len(w); i++ {
		s += float32(BF16(w[i]) * x[i])
	}
	return s
}

// DotBF16x4 is DotBF16 with four vectors that start stride elements apart in x.
func DotBF16x4(w []uint16, x []float32, stride int) [4]float32 {
	_ = x[3*stride+len(w)-1]
	n := len(w) &^ (lanes - 1)
	var s [4]float32
	if n > 0 {
		dotBF16x4(w[:n], x, stride, &s)
	}
	for i := n; i < len(w); i++ {
		f := BF16(w[i])
		for r := range s {
			s[r] += float32(f * x[r*stride+i])
		}
	}
	return s
}

// Dot is the dot product of two vectors of the same length.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	n := len(a) &^ (lanes - 1)
	var s float32
	if n > 0 {
		s = dot(a[:n], b[:n])
	}
	for i := n; i < len(a); i++ {
		s += float32(a[i] * b[i])
	}
	return s
}

// AddScaled adds f times src to dst, element by element.
func AddScaled(dst, src []float32, f float32) {
	src = src[:len(dst)]
	n := len(dst) &^ 7
	if n > 0 {
		addScaled(dst[:n], src[:n], f)
	}
	for i := n; i < len(dst); i++ {
		dst[i] += float32(src[i] * f)
	}
}

// fold sums the partials of a dot product by halves.
func fold(p *[lanes]float32) float32 {
	for half := lanes / 2; half > 0; half /= 2 {
		for i := range half {
			p[i] += p[i+half]
		}
	}
	return p[0]
}

// dotBF16Go, dotBF16x4Go, dotGo and addScaledGo are the loops in Go. Lengths
// are multiples of 16 (8 for addScaledGo).
func dotBF16Go(w []uint16, x []float32) float32 {
	var p [lanes]float32
	for ; len(w) >= lanes; w, x = w[lanes:], x[lanes:] {
		for i := range lanes {
			p[i] += float32(BF16(w[i]) * x[i])
		}
	}
	return fold(&p)
}

func dotBF16x4Go(w []uint16, x []float32, stride int, out *[4]float32) {
	for r := range out {
		out[r] = dotBF16Go(w, x[r*stride:r*stride+len(w)])
	}
}

func dotGo(a, b []float32) float32 {
	var p [lanes]float32
	for ; len(a) >= lanes; a, b = a[lanes:], b[lanes:] {
		for i := range lanes {
			p[i] += float32(a[i] * b[i])
		}
	}
	return fold(&p)
}

func addScaledGo(dst, src []float32, f float32) {
	for i := range dst {
		dst[i] += float32(src[i] * f)
	}
}
