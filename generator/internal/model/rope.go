package model

import (
	"fmt"
	"math"
)

// RoPEScaling stretches RoPE past the context that a model was trained on at
// first: rope_type "llama3". The zero value stretches nothing.
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
		return fmt.Errorf("model: config.json: rope_scaling: high_freq_factor is %g, wants more than low_freq_factor, %g",
			s.HighFactor, s.LowFactor)
	}
	return nil
}

// scaled is a frequency, in radians per token, as the scaling has it: a wave
// longer than Original/LowFactor is slowed by Factor, one shorter than
// Original/HighFactor is left alone, those between change over smoothly.
// (Meta, "The Llama 3 Herd of Models", 2024, and the code beside it.)
func (s RoPEScaling) scaled(frequency float32) float32 {
	if s == (RoPEScaling{}) {
		return frequency
	}
	turns := float64(s.Original) * float64(frequency) / (2 * math.Pi) // in the original context
	keep := min(max((turns-s.LowFactor)/(s.HighFactor-s.LowFactor), 0), 1)
	return float32((1-keep)*float64(frequency)/s.Factor + keep*float64(frequency))
}

// RoPEBytes is what the table of RoPE takes on a device.
func (c Config) RoPEBytes() int64 { return 4 * int64(c.Context) * int64(c.HeadDim) }

// ropeTable is cos and sin of position·frequency(i) with the frequencies
// theta^(-2i/d), scaled, as [context][d/2][cos, sin]. Angles are formed in
// float32, as the models were trained.
func ropeTable(c Config) []float32 {
	d := c.HeadDim
	frequencies := make([]float32, d/2)
	for i := range frequencies {
		frequencies[i] = c.RoPE.scaled(float32(1 / math.Pow(c.RoPETheta, float64(2*i)/float64(d))))
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
