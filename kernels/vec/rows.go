package vec

// Scale writes g[i]·(x[i]·f) to y, which x and g are as long as, or longer.
func Scale(y, x, g []float32, f float32) {
	x, g = x[:len(y)], g[:len(y)]
	n := len(y) &^ 7
	if n > 0 {
		scale(y[:n], x[:n], g[:n], f)
	}
	scaleGo(y[n:], x[n:], g[n:], f)
}

// Rotate rotates the pairs of x, whose second elements are half its length behind the first, by the angles of rotation,
// which has the cosine and the sine of each.
func Rotate(x, rotation []float32) {
	a, b := x[:len(x)/2], x[len(x)/2:]
	rotation = rotation[:2*len(a)]
	n := len(a) &^ 7
	if n > 0 {
		rotate(a[:n], b[:n], rotation[:2*n])
	}
	rotateGo(a[n:], b[n:], rotation[2*n:])
}

func scaleGo(y, x, g []float32, f float32) {
	for i := range y {
		y[i] = g[i] * float32(x[i]*f)
	}
}

func rotateGo(a, b, rotation []float32) {
	for i := range a {
		cos, sin, p, q := rotation[2*i], rotation[2*i+1], a[i], b[i]
		a[i] = float32(p*cos) - float32(q*sin)
		b[i] = float32(q*cos) + float32(p*sin)
	}
}
