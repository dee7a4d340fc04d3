package model

import (
	"fmt"
	"math"
	"slices"
)

// RoPEScaling extends RoPE beyond the context of pretraining: rope_type "llama3". The zero
// value scales nothing.
type RoPEScaling struct {
	Factor     float64
	LowFactor  float64 // low_freq_factor
	HighFactor float64 // high_freq_factor
	Original   int     // tokens: original_max_position_embeddings
}

func (s RoPEScaling) check() error {
	if s == (RoPEScaling{}) {
		return nil
	}
	for _, v := range []struct {
		field        string
		value, least float64
		most         float64
	}{{"factor", s.Factor, 1, maxScale}, {"low_freq_factor", s.LowFactor, minScale, maxScale},
		{"high_freq_factor", s.HighFactor, minScale, maxScale},
		{"original_max_position_embeddings", float64(s.Original), 1, maxContext}} {
		if !(v.value >= v.least && v.value <= v.most) {
			return outside("rope_scaling: "+v.field, v.value, v.least, v.most)
		}
	}
	if s.HighFactor <= s.LowFactor {
		return fmt.Errorf("model: config.json: rope_scaling: high_freq_factor is %g, wants more than low_freq_factor, "+
			"which is %g", s.HighFactor, s.LowFactor)
	}
	return nil
}

// scaled returns a frequency, in radians per token, after scaling. Wavelengths above
// Original/LowFactor tokens are multiplied by Factor, those below Original/HighFactor stay,
// and those between are interpolated.
// (Meta, "The Llama 3 Herd of Models", 2024, and its reference code.)
func (s RoPEScaling) scaled(frequency float32) float32 {
	if s == (RoPEScaling{}) {
		return frequency
	}
	rotations := float64(s.Original) * float64(frequency) / (2 * math.Pi) // over the original context
	keep := min(max((rotations-s.LowFactor)/(s.HighFactor-s.LowFactor), 0), 1)
	return float32((1-keep)*float64(frequency)/s.Factor + keep*float64(frequency))
}

// setDivisors keeps the divisors of a GGUF file. If they are those of a published Llama 3, to the rounding of float32,
// c gets its scaling instead, so that the table is the same as with config.json.
func (c *Config) setDivisors(divisors []float32) {
	for original := 64; original <= 1<<20; original *= 2 {
		s := RoPEScaling{Factor: float64(slices.Max(divisors)), LowFactor: 1, HighFactor: 4, Original: original}
		if s.equals(divisors, c.RoPETheta) && s.check() == nil {
			c.RoPE = s
			return
		}
	}
	c.RoPEDivisors = divisors
}

// equals reports whether s divides the frequencies by these numbers. The converter computes them in float32, and the
// interpolated ones lose some digits.
func (s RoPEScaling) equals(divisors []float32, theta float64) bool {
	for i, divisor := range divisors {
		f := frequency(theta, i, 2*len(divisors))
		if got := float64(f) / float64(s.scaled(f)); !(math.Abs(got-float64(divisor)) <= 1e-4*got) {
			return false
		}
	}
	return true
}

// frequency returns frequency i of d/2, in radians per token, before scaling.
func frequency(theta float64, i, d int) float32 {
	return float32(1 / math.Pow(theta, float64(2*i)/float64(d)))
}

// RoPEBytes returns the size of RoPE's table on a device.
func (c Config) RoPEBytes() int64 { return 4 * int64(c.Context) * int64(c.HeadDim) }

// ropeTable returns cos and sin of position·frequency[i] as [context][d/2][cos, sin].
// frequency[i] is theta^(-2i/d), scaled or divided. Angles are rounded to float32, as in training.
func ropeTable(c Config) []float32 {
	d := c.HeadDim
	frequencies := make([]float32, d/2)
	for i := range frequencies {
		frequencies[i] = c.RoPE.scaled(frequency(c.RoPETheta, i, d))
		if c.RoPEDivisors != nil {
			frequencies[i] /= c.RoPEDivisors[i]
		}
	}
	t := make([]float32, 0, c.Context*d)
	for position := range c.Context {
		for _, frequency := range frequencies {
			sin, cos := math.Sincos(float64(float32(position) * frequency))
			t = append(t, float32(cos), float32(sin))
		}
	}
	return t
}
