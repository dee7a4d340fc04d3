package vec

func gate(x, up []float32, linear, cubic float32) {
	switch {
	case useAVX512:
		gateAVX512(&x[0], &up[0], linear, cubic, len(x), &expTable)
	case useAVX2:
		gateAVX2(&x[0], &up[0], linear, cubic, len(x), &expTable)
	default:
		gateGo(x, up, linear, cubic)
	}
}

// The functions of activation_amd64.s. n is a multiple of 16 above 0.

//go:noescape
func gateAVX2(x, up *float32, linear, cubic float32, n int, table *[12][8]float32)

//go:noescape
func gateAVX512(x, up *float32, linear, cubic float32, n int, table *[12][8]float32)
