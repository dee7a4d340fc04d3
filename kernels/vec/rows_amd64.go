package vec

func scale(y, x, g []float32, f float32) {
	if useAVX2 {
		scaleAVX2(&y[0], &x[0], &g[0], f, len(y))
		return
	}
	scaleGo(y, x, g, f)
}

func rotate(a, b, rotation []float32) {
	if useAVX2 {
		rotateAVX2(&a[0], &b[0], &rotation[0], len(a))
		return
	}
	rotateGo(a, b, rotation)
}

// The functions of rows_amd64.s. n is a multiple of 8 above 0.

//go:noescape
func scaleAVX2(y, x, gains *float32, f float32, n int)

//go:noescape
func rotateAVX2(a, b, rotation *float32, n int)
