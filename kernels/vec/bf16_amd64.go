package vec

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// useDotBF16 selects the loop with VDPBF16PS, and useFused those with fused multiply-adds. Tests turn them off.
var (
	useDotBF16 = cpu.X86.HasAVX512BF16
	useFused   = cpu.X86.HasAVX2 && cpu.X86.HasFMA
)

// ReadsMapped reports whether [ProductsBF16] may read rows from a mapped file, whose pages may be missing.
func ReadsMapped() bool { return useAVX512 && useDotBF16 || !useAVX2 || !useFused }

// linesAhead is how many lines of 64 bytes the loops for AVX-512 fetch with 64 bytes of each row, of 4 or 2 rows of
// activations; of one it is twice as many.
const linesAhead = 2

// farther is how many bytes behind the next four rows the loops fetch, so that lines are there in time.
const farther = 4096

// ahead returns by how many bytes loops over T rows, of which each takes four rows of a weight, fetch the next four.
func ahead(T int) int {
	lines := linesAhead * (T/4 + T%4/2 + 2*(T%2))
	return (4*64 + lines - 1) / lines
}

// productsBF16 returns false if it did nothing.
func productsBF16(y []float32, x []uint16, rows []byte, d, T, n, stride int, add bool) bool {
	if !useAVX2 {
		return false
	}
	adds := 0
	if add {
		adds = 1
	}
	next := uintptr(unsafe.Pointer(&rows[0])) + uintptr(8*d+farther)
	switch {
	case useAVX512 && useDotBF16:
		productsBF16AVX512(&y[0], &x[0], &rows[0], 2*d, T, n, stride, adds, next, ahead(T))
	case useAVX512:
		productsFusedAVX512(&y[0], &x[0], &rows[0], 2*d, T, n, stride, adds, next, 0)
	case useFused:
		productsFusedAVX2(&y[0], &x[0], &rows[0], 2*d, T, n, stride, adds)
	default:
		return false
	}
	return true
}

func roundBF16(y []uint16, x []float32) {
	if useAVX2 {
		roundBF16AVX2(&y[0], &x[0], len(x))
		return
	}
	roundBF16Go(y, x)
}

// The functions of bf16_avx512_amd64.s and bf16_amd64.s. The first three are [ProductsBF16] for n rows of a weight and T
// rows of x, which have a multiple of 64 bytes; add is 0 or 1. Those for AVX-512 fetch what is ahead as productsAVX512
// does. n of roundBF16AVX2 is a multiple of 16. All numbers but add are above 0.

//go:noescape
func productsBF16AVX512(y *float32, x *uint16, rows *byte, bytes, T, n, stride, add int, ahead uintptr, step int)

//go:noescape
func productsFusedAVX512(y *float32, x *uint16, rows *byte, bytes, T, n, stride, add int, ahead uintptr, step int)

//go:noescape
func productsFusedAVX2(y *float32, x *uint16, rows *byte, bytes, T, n, stride, add int)

//go:noescape
func roundBF16AVX2(y *uint16, x *float32, n int)
