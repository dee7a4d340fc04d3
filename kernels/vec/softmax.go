package vec

import (
	"math"
	"slices"
)

// Constants of exp: x = n·ln 2 + r with |r| at most ln 2 / 2, e^x = 2^n·e^r. ln 2 is in two parts, of which the
// first has few bits, so that n times it is exact. e^r = 1 + r + r²·p(r), with the polynomial of expf in Cephes
// (Moshier, 1992).
const (
	expRound = 3 << 22 // x + expRound has the integer nearest to x in its low bits
	expLeast = -87     // e^-87 = 1.6e-38 is near the least float32 with all its bits
	ln2High  = 355.0 / 512
	ln2Low   = math.Ln2 - ln2High
)

var expTerms = [6]float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
	5.0000001201e-1}

// SoftmaxWeights replaces x[i] by exp(scale·x[i] - m), with m the largest scale·x[i], and returns the sum of the
// results, in the order of a dot product with the last lanes filled up with 0. A result is within 1 unit in the last
// place of the exponential of the float32 difference, or 0 if the difference is below -87. With a NaN in x the sum
// is NaN.
func SoftmaxWeights(x []float32, scale float32) float32 {
	n := len(x) &^ (lanes - 1)
	most := float32(math.Inf(-1))
	if n > 0 {
		most = scaleMax(x[:n], scale)
	}
	var tail, sum [lanes]float32
	for i := range tail {
		tail[i] = float32(math.Inf(-1))
	}
	for i, v := range x[n:] {
		tail[i] = v * scale
		most = larger(most, tail[i])
	}
	if n > 0 {
		expSum(x[:n], most, &sum)
	}
	if n < len(x) {
		expSum(tail[:], most, &sum)
		copy(x[n:], tail[:])
	}
	return fold(&sum)
}

// sumBlock is how many exponentials LogSumExp adds in float32.
const sumBlock = 64 * lanes

// LogSumExp returns ln Σ exp(x_i), within 2·10⁻⁶ of float64's, or NaN with a NaN in x. It adds blocks of 1,024
// exponentials in the order of [SoftmaxWeights], and then their sums in float64.
func LogSumExp(x []float32) float64 {
	var block [sumBlock]float32
	most := float32(math.Inf(-1))
	for part := range slices.Chunk(x, sumBlock) {
		most = larger(scaleMax(fill(&block, part), 1), most)
	}
	var total float64
	for part := range slices.Chunk(x, sumBlock) {
		var sum [lanes]float32
		expSum(fill(&block, part), most, &sum)
		total += float64(fold(&sum))
	}
	return float64(most) + math.Log(total)
}

// fill copies x to block, and returns it with the last lanes filled up with -∞.
func fill(block *[sumBlock]float32, x []float32) []float32 {
	n := copy(block[:], x)
	for ; n%lanes != 0; n++ {
		block[n] = float32(math.Inf(-1))
	}
	return block[:n]
}

// larger returns a if it is above b, else b, as VMAXPS does.
func larger(a, b float32) float32 {
	if a > b {
		return a
	}
	return b
}

// scaleMax multiplies x by scale and returns the largest product. The length is a multiple of 16 above 0.
func scaleMax(x []float32, scale float32) float32 {
	var p [lanes]float32
	for i := range p {
		p[i] = float32(math.Inf(-1))
	}
	scaleMaxLanes(x, scale, &p)
	most := p[0]
	for _, v := range p[1:] {
		most = larger(most, v)
	}
	return most
}

// scaleMaxGo multiplies x by scale and raises most[i mod 16] to the products.
func scaleMaxGo(x []float32, scale float32, most *[lanes]float32) {
	for ; len(x) >= lanes; x = x[lanes:] {
		for i := range lanes {
			x[i] *= scale
			most[i] = larger(most[i], x[i])
		}
	}
}

// expSumGo replaces x[i] by exp(x[i]-most) and adds it to sum[i mod 16].
func expSumGo(x []float32, most float32, sum *[lanes]float32) {
	for ; len(x) >= lanes; x = x[lanes:] {
		for i := range lanes {
			x[i] = exp(x[i] - most)
			sum[i] += x[i]
		}
	}
}

// exp returns e^x for x of at most 0, or 0 for x below -87.
func exp(x float32) float32 {
	if x < expLeast {
		return 0
	}
	t := float32(x*math.Log2E) + expRound
	n := t - expRound
	r := x - float32(n*ln2High)
	r -= float32(n * ln2Low)
	p := expTerms[0]
	for _, c := range expTerms[1:] {
		p = float32(p*r) + c
	}
	p = float32(p*float32(r*r)) + r + 1
	return p * math.Float32frombits(math.Float32bits(t)<<23+math.Float32bits(1))
}

// Softcap replaces x[i] by y·tanh(x[i]·scale/y) for a cap y, within 2·10⁻⁷ of y.
func Softcap(x []float32, scale, y float32) {
	scale /= y
	for i, v := range x {
		z := v * scale
		e := exp(-2 * max(z, -z))
		x[i] = y * ((1 - e) / (1 + e))
		if z < 0 {
			x[i] = -x[i]
		}
	}
}
