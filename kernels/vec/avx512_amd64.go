package vec

import "golang.org/x/sys/cpu"

// useAVX512 selects the loops of attention with registers of 16 lanes. Tests turn it off to compare with the others.
var useAVX512 = cpu.X86.HasAVX512F

// Bounds of dotRows16AVX512. It first puts the rows into columns, which costs as much as it saves for columnHeads
// heads.
const (
	columnHeads = 6
	maxColumns  = 256 // elements of a row, for which its stack has room
)

// mayDotColumns reports whether dotRows16AVX512 takes n rows of d elements, and is worth it for so many heads.
func mayDotColumns(n, d, heads int) bool {
	return useAVX512 && n == lanes && heads >= columnHeads && d > lanes && d <= maxColumns
}

// The functions of dots_avx512_amd64.s and sums_avx512_amd64.s, with the arguments of those for AVX2. d is a multiple
// of 16, and above 16 and at most 256 for dotRows16AVX512. All lengths and numbers are above 0.

//go:noescape
func dotRows16AVX512(out, a, rows *float32, d, heads, stride int)

//go:noescape
func addScaledRowsAVX512(dst, rows, f *float32, n, d, heads, stride int)

//go:noescape
func scaleMaxAVX512(x *float32, scale float32, n int, most *[lanes]float32)

//go:noescape
func expSumAVX512(x *float32, most float32, n int, sum *[lanes]float32, table *[12][8]float32)

// productsAVX512 is [Products] for n rows of a weight and T rows of x, which have a multiple of 64 bytes. add is 0 or 1.
// With 64 bytes of each row it fetches lines, see linesAhead: the one at ahead, which need not be readable, then the one
// step bytes behind it, and so on.
//
//go:noescape
func productsAVX512(y, x, rows *float32, bytes, T, n, stride, add int, ahead uintptr, step int)
