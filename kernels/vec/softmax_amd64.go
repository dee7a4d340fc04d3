package vec

import "math"

// expTable holds the constants of exp for expSumAVX2, each 8 times: -87, log2 e, expRound, ln 2 in two parts, the
// terms, 1.
var expTable = func() (table [12][8]float32) {
	constants := append([]float32{expLeast, math.Log2E, expRound, ln2High, ln2Low}, expTerms[:]...)
	for i, c := range append(constants, 1) {
		for lane := range table[i] {
			table[i][lane] = c
		}
	}
	return table
}()

func scaleMaxLanes(x []float32, scale float32, most *[lanes]float32) {
	switch {
	case useAVX512:
		scaleMaxAVX512(&x[0], scale, len(x), most)
	case useAVX2:
		scaleMaxAVX2(&x[0], scale, len(x), most)
	default:
		scaleMaxGo(x, scale, most)
	}
}

func expSum(x []float32, most float32, sum *[lanes]float32) {
	switch {
	case useAVX512:
		expSumAVX512(&x[0], most, len(x), sum, &expTable)
	case useAVX2:
		expSumAVX2(&x[0], most, len(x), sum, &expTable)
	default:
		expSumGo(x, most, sum)
	}
}

// The functions of softmax_amd64.s. n is a multiple of 16 above 0.

//go:noescape
func scaleMaxAVX2(x *float32, scale float32, n int, most *[lanes]float32)

//go:noescape
func expSumAVX2(x *float32, most float32, n int, sum *[lanes]float32, table *[12][8]float32)
