//go:build !amd64

package vec

func dot(a, b []float32) float32 { return dotGo(a, b) }

func addScaled(dst, src []float32, f float32) { addScaledGo(dst, src, f) }

func dotRows(_, _, _ []float32, _, _, _ int) bool { return false }

func products(_, _, _ []float32, _, _, _, _ int, _ bool, _ []byte) bool { return false }

func addScaledRows(_, _, _ []float32, _, _, _ int) bool { return false }

func scaleMaxLanes(x []float32, scale float32, most *[lanes]float32) { scaleMaxGo(x, scale, most) }

func expSum(x []float32, most float32, sum *[lanes]float32) { expSumGo(x, most, sum) }

func gate(x, up []float32, linear, cubic float32) { gateGo(x, up, linear, cubic) }

func scale(y, x, g []float32, f float32) { scaleGo(y, x, g, f) }

func rotate(a, b, rotation []float32) { rotateGo(a, b, rotation) }

// ReadsMapped reports whether [ProductsBF16] may read rows from a mapped file, whose pages may be missing.
func ReadsMapped() bool { return true }

func productsBF16(_ []float32, _ []uint16, _ []byte, _, _, _, _ int, _ bool) bool { return false }

func roundBF16(y []uint16, x []float32) { roundBF16Go(y, x) }

func useQuantised() bool { return false }

func (l *blockLoops) fastest() dotsFunc { return l.dots }

var loopsQ4_0, loopsQ4_1, loopsQ5_0, loopsQ5_1, loopsQ8_0, loopsQ4_K, loopsQ5_K, loopsQ6_K, loopsIQ4_XS, loopsMXFP4,
	loopsF8, loopsG4_32, loopsG4_64, loopsG4_128 blockLoops

var loopsBF16, loopsF16 blockLoops
