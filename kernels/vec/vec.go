// Package vec holds the inner loops of the host ops: dot products and scaled sums over
// contiguous rows. The order of summation is stated here and is the same in Go and in
// assembly, so a sum depends on its operands alone, not on the machine nor on the
// number of rows computed beside it.
//
// A dot product of n elements keeps 16 partial sums. Element i is added to partial
// i mod 16, in rising order of i. The partials are then folded by halves:
// p[i] += p[i+8], p[i] += p[i+4], p[i] += p[i+2], p[0] += p[1]. Elements past the last
// multiple of 16 are added to the result one by one. Product and sum are rounded
// separately, without fused multiply-add. Products of bfloat16 have another order, see
// bf16.go.
package vec

import "math"

// lanes is the number of partial sums of a dot product.
const lanes = 16

// BF16 returns the float32 of bfloat16 bits.
func BF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// Dot returns the dot product of a and a vector b that is at least as long.
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

// AddScaled adds f times src, which is at least as long as dst, to dst.
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

// DotRows sets out[h·stride+i] to the dot product of a[h·d:(h+1)·d] and row i of rows, which has rows of d elements.
// out ends with the last product, or later.
func DotRows(out, a, rows []float32, d, stride int) {
	n, heads := len(rows)/d, len(a)/d
	if n == 0 || heads == 0 {
		return
	}
	_ = out[(heads-1)*stride+n-1]
	if d%lanes == 0 && dotRows(out, a, rows, n, d, stride) {
		return
	}
	for h := range heads {
		for i := range n {
			out[h*stride+i] = Dot(a[h*d:][:d], rows[i*d:][:d])
		}
	}
}

// Products sets y[t·stride+i] to the dot product of row t of x and row i of rows, or adds it to that if add is set. Rows
// have d elements. y ends with the last product, or later. ahead is what is read next: it may be fetched meanwhile.
func Products(y, x, rows []float32, d, stride int, add bool, ahead []byte) {
	n, T := len(rows)/d, len(x)/d
	if n == 0 || T == 0 {
		return
	}
	_ = y[(T-1)*stride+n-1]
	if d%lanes == 0 && products(y, x, rows, d, T, n, stride, add, ahead) {
		return
	}
	if !add {
		DotRows(y, x, rows, d, stride)
		return
	}
	var part [lanes]float32
	for t := range T {
		for i := 0; i < n; i += lanes {
			few := min(lanes, n-i)
			DotRows(part[:few], x[t*d:][:d], rows[i*d:(i+few)*d], d, few)
			for j, v := range part[:few] {
				y[t*stride+i+j] += v
			}
		}
	}
}

// AddScaledRows adds f[h·stride+i] times row i of rows to dst[h·d:(h+1)·d], row after row. rows has rows of d elements.
// f ends with the last factor, or later.
func AddScaledRows(dst, rows, f []float32, d, stride int) {
	n, heads := len(rows)/d, len(dst)/d
	if n == 0 || heads == 0 {
		return
	}
	_ = f[(heads-1)*stride+n-1]
	if d%8 == 0 && addScaledRows(dst, rows, f, n, d, stride) {
		return
	}
	for h := range heads {
		for i := range n {
			AddScaled(dst[h*d:][:d], rows[i*d:][:d], f[h*stride+i])
		}
	}
}

// fold sums the partials of a dot product by halves, in place.
func fold(p *[lanes]float32) float32 {
	for half := lanes / 2; half > 0; half /= 2 {
		for i := range half {
			p[i] += p[i+half]
		}
	}
	return p[0]
}

// dotGo and addScaledGo are the loops in Go. Lengths are multiples of 16, or of 8 for addScaledGo.
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
