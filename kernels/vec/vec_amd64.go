package vec

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// useAVX2 selects the assembly. Tests turn it off to compare with the Go loops.
var useAVX2 = cpu.X86.HasAVX2

func dot(a, b []float32) float32 {
	if useAVX2 {
		return dotAVX2(&a[0], &b[0], len(a))
	}
	return dotGo(a, b)
}

func addScaled(dst, src []float32, f float32) {
	if useAVX2 {
		addScaledAVX2(&dst[0], &src[0], f, len(dst))
		return
	}
	addScaledGo(dst, src, f)
}

// dotRows and addScaledRows return false if they did nothing.
func dotRows(out, a, rows []float32, n, d, stride int) bool {
	switch heads := len(a) / d; {
	case mayDotColumns(n, d, heads):
		dotRows16AVX512(&out[0], &a[0], &rows[0], d, heads, stride)
	case useAVX512 && d >= maxColumns:
		productsAVX512(&out[0], &a[0], &rows[0], 4*d, heads, n, stride, 0,
			uintptr(unsafe.Pointer(&rows[0])), 0)
	case useAVX2:
		dotRowsAVX2(&out[0], &a[0], &rows[0], n, d, heads, stride)
	default:
		return false
	}
	return true
}

// products returns false if it did nothing.
func products(y, x, rows []float32, d, T, n, stride int, add bool, ahead []byte) bool {
	if !useAVX512 {
		return false
	}
	adds := 0
	if add {
		adds = 1
	}
	next, step := uintptr(unsafe.Pointer(&rows[0])), 0
	if len(ahead) > 0 {
		lines := linesAhead * (T/4 + T%4/2 + 2*(T%2)) * ((n + 3) / 4) * d / lanes
		next, step = uintptr(unsafe.Pointer(&ahead[0])), (len(ahead)+lines-1)/lines
	}
	productsAVX512(&y[0], &x[0], &rows[0], 4*d, T, n, stride, adds, next, step)
	return true
}

func addScaledRows(dst, rows, f []float32, n, d, stride int) bool {
	switch heads := len(dst) / d; {
	case useAVX512 && d%lanes == 0:
		addScaledRowsAVX512(&dst[0], &rows[0], &f[0], n, d, heads, stride)
	case useAVX2:
		addScaledRowsAVX2(&dst[0], &rows[0], &f[0], n, d, heads, stride)
	default:
		return false
	}
	return true
}

// The functions of vec_amd64.s. n is above 0 and a multiple of 16, or of 8 for
// addScaledAVX2. In the functions for rows n is their number, above 0, d is their length,
// a multiple of 16, or of 8 for addScaledRowsAVX2, and heads is above 0.

//go:noescape
func dotAVX2(a, b *float32, n int) float32

//go:noescape
func addScaledAVX2(dst, src *float32, f float32, n int)

//go:noescape
func dotRowsAVX2(out, a, rows *float32, n, d, heads, stride int)

//go:noescape
func addScaledRowsAVX2(dst, rows, f *float32, n, d, heads, stride int)
