//go:build !amd64

package vec

func dotBF16(w []uint16, x []float32) float32 { return dotBF16Go(w, x) }

func dotBF16x4(w []uint16, x []float32, stride int, out *[4]float32) {
	dotBF16x4Go(w, x, stride, out)
}

func dot(a, b []float32) float32 { return dotGo(a, b) }

func addScaled(dst, src []float32, f float32) { addScaledGo(dst, src, f) }

func dotRows(_, _, _ []float32, _, _, _ int) bool { return false }

func addScaledRows(_, _, _ []float32, _, _, _ int) bool { return false }

func scaleMaxLanes(x []float32, scale float32, most *[lanes]float32) { scaleMaxGo(x, scale, most) }

func expSum(x []float32, most float32, sum *[lanes]float32) { expSumGo(x, most, sum) }
