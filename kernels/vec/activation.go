package vec

import "math"

// gateMost bounds the argument of the exponential in [Gate]: e^-gateMost is taken for 0.
const gateMost = -expLeast + 0.5

// Gate replaces a = x[i] by act(a)·up[i] with act(a) = a/(1+e^-b) and b = linear·a + cubic·a³: SiLU, GELU with tanh, and
// their likes. up is at least as long as x, linear at least 1 and cubic at least 0. act(a) is within 4 units in the last
// place of a with b = a, and is -0 where b is below -87.
func Gate(x, up []float32, linear, cubic float32) {
	up = up[:len(x)]
	n := len(x) &^ (lanes - 1)
	if n > 0 {
		gate(x[:n], up[:n], linear, cubic)
	}
	gateGo(x[n:], up[n:], linear, cubic)
}

// gateGo takes the exponential of a number of at most 0: with e = e^-|b|, act(a) is a/(1+e), or a·e/(1+e) below 0.
func gateGo(x, up []float32, linear, cubic float32) {
	for i, a := range x {
		size := math.Float32frombits(math.Float32bits(a) &^ (1 << 31))
		if !(size < gateMost) {
			size = gateMost
		}
		e, f := exp(-float32(size*(float32(cubic*float32(size*size))+linear))), float32(1)
		if a < 0 {
			f = e
		}
		x[i] = float32(float32(a*f)/(e+1)) * up[i]
	}
}
