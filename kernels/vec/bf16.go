package vec

import (
	"encoding/binary"
	"math"
	"sync"
)

// Products of bfloat16 have an order of sums of their own, that of the instruction VDPBF16PS (Intel's manual, volume 2).
// A dot product keeps 16 partial sums. Partial i takes elements 2i+1 and then 2i of each 32, in rising order: product
// and sum are one fused multiply-add, which takes denormals as 0, of either sign, and gives them as 0. The partials are
// then folded by halves, as those of [Dot], and there denormals count. A sum that is not a number has the bits
// 0x7fc00000. Rows are whole blocks of 32: shorter ones have zeros behind them.

// blockBF16 is the number of elements that rows of [ProductsBF16] are multiples of.
const blockBF16 = 2 * lanes

// PaddedBF16 returns the length of a row of n elements for [ProductsBF16].
func PaddedBF16(n int) int { return (n + blockBF16 - 1) &^ (blockBF16 - 1) }

// notANumber is what a product of bfloat16 is if it is not a number.
var notANumber = math.Float32frombits(0x7fc00000)

// RoundBF16 sets y to the bfloat16 nearest to the elements of x, ties to even, and the rest of y to 0.
func RoundBF16(y []uint16, x []float32) {
	n := len(x) &^ (lanes - 1)
	_ = y[:len(x)]
	if n > 0 {
		roundBF16(y[:n], x[:n])
	}
	roundBF16Go(y[n:], x[n:])
	clear(y[len(x):])
}

func roundBF16Go(y []uint16, x []float32) {
	for i, v := range x {
		y[i] = NearestBF16(v)
	}
}

// NearestBF16 returns the bfloat16 nearest to v, ties to even.
func NearestBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return 0x7fff
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// ProductsBF16 sets y[t·stride+i] to the dot product of row t of x and row i of rows, or adds it to that if add is set.
// Rows have d elements, a multiple of 32; those of rows are little-endian. y ends with the last product, or later. rows
// must be memory of Go unless [ReadsMapped] is true.
func ProductsBF16(y []float32, x []uint16, rows []byte, d, stride int, add bool) {
	n, T := len(rows)/(2*d), len(x)/d
	if n == 0 || T == 0 {
		return
	}
	_ = y[(T-1)*stride+n-1]
	if d%blockBF16 != 0 {
		panic("vec: a part of a block")
	}
	if productsBF16(y, x, rows, d, T, n, stride, add) {
		return
	}
	wide := wideRows.Get().(*[]float32)
	for t := range T {
		row := x[t*d:][:d]
		*wide = (*wide)[:0]
		for _, v := range row {
			*wide = append(*wide, BF16(v))
		}
		least := leastExponent(row)
		for i := range n {
			v := dotBF16Go(rows[2*i*d:][:2*d], row, *wide, least)
			if add {
				v += y[t*stride+i]
			}
			y[t*stride+i] = v
		}
	}
	wideRows.Put(wide)
}

// wideRows keeps a buffer for each goroutine that multiplies in Go.
var wideRows = sync.Pool{New: func() any { return new([]float32) }}

// leastExponent returns the least exponent, as it is stored, of the numbers of x but 0; above all others if there are
// none.
func leastExponent(x []uint16) int {
	least := uint16(0xffff)
	for _, v := range x {
		least = min(least, v&0x7fff-1)
	}
	return (int(least) + 1) >> 7
}

// exactExponents is the least sum of the exponents of two numbers, as they are stored, of which no product and no sum of
// products can be a denormal: all are multiples of 2^-14 of the numbers' powers of two, and that is 2^-126.
const exactExponents = 2*127 - 126 + 14

// dotBF16Go returns the dot product of w and x. wide has x in float32, and least is its leastExponent. A product of two
// numbers of 8 bits is exact in float32 if it is neither a denormal nor too large, and then a fused multiply-add is a
// product and a sum. If a number is so small that this is not sure, or a sum so large, fusedDot computes all again.
func dotBF16Go(w []byte, x []uint16, wide []float32, least int) float32 {
	if least > 0 && least < 255 {
		if s, ok := exactDot(w, wide, max(1, exactExponents-least)); ok {
			return s
		}
	}
	return fusedDot(w, x)
}

const (
	each   = 0x0001000100010001 // 1 for each of four numbers
	magMax = 0x7fff             // a number's bits without its sign
)

// exactDot returns the dot product of w and x if all numbers of w but 0 have at least the exponent least, as it is
// stored, and the sum is a number.
func exactDot(w []byte, x []float32, least int) (s float32, ok bool) {
	var p [lanes]float32
	room := uint64(0x8000-least<<7) * each // brings numbers that are large enough to 0x8000
	for ; len(x) >= blockBF16; w, x = w[2*blockBF16:], x[blockBF16:] {
		w, x := (*[2 * blockBF16]byte)(w), (*[blockBF16]float32)(x)
		var small uint64
		for i := 0; i < len(w); i += 8 {
			small |= ^(binary.LittleEndian.Uint64(w[i:i+8])&(magMax*each) + room)
		}
		if small&(0x8000*each) != 0 && anySmall(w, room) {
			return 0, false
		}
		for i := range lanes {
			pair := binary.LittleEndian.Uint32(w[4*i : 4*i+4])
			p[i] = p[i] + math.Float32frombits(pair&0xffff0000)*x[2*i+1] + math.Float32frombits(pair<<16)*x[2*i]
		}
	}
	s = fold(&p)
	return s, s-s == 0
}

// anySmall reports whether a number of w that is not 0 is too small for room.
func anySmall(w *[2 * blockBF16]byte, room uint64) bool {
	var small uint64
	for i := 0; i < len(w); i += 8 {
		v := binary.LittleEndian.Uint64(w[i:i+8]) & (magMax * each)
		small |= ^(v + room) & (v + magMax*each)
	}
	return small&(0x8000*each) != 0
}

// fusedDot is the dot product of any numbers.
func fusedDot(w []byte, x []uint16) float32 {
	var p [lanes]float32
	for ; len(x) >= blockBF16; w, x = w[2*blockBF16:], x[blockBF16:] {
		for i := range lanes {
			pair := binary.LittleEndian.Uint32(w[4*i:])
			p[i] = fused(fused(p[i], uint16(pair>>16), x[2*i+1]), uint16(pair), x[2*i])
		}
	}
	if s := fold(&p); s == s {
		return s
	}
	return notANumber
}

// fused returns sum+w·x, rounded once, with denormals taken and given as 0. The product is exact in float64, and its sum
// with a float32 has no other rounding if it is rounded to 53 bits first. A result is a denormal if it is one when
// rounded to 24 bits, whatever the exponent.
func fused(sum float32, w, x uint16) float32 {
	s := float64(sum) + float64(float64(withoutDenormals(w))*float64(withoutDenormals(x)))
	if math.Abs(s) < 0x1p-126-0x1p-151 {
		return float32(math.Copysign(0, s))
	}
	return float32(s)
}

// withoutDenormals returns the float32 of bfloat16 bits, for those of a denormal 0.
func withoutDenormals(b uint16) float32 {
	if b&0x7f80 == 0 {
		b &= 0x8000
	}
	return BF16(b)
}
