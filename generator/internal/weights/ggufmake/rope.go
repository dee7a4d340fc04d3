package ggufmake

import (
	"encoding/binary"
	"math"
	"slices"

	"reel.internal/reel/generator/internal/model"
)

// scaling returns the metadata of RoPE's scaling, without the architecture's name.
func scaling(c model.Config) (pairs []Pair) {
	switch s := c.RoPE; s.Kind {
	case model.LinearRoPE:
		pairs = []Pair{{"rope.scaling.type", "linear"}, {"rope.scaling.factor", float32(s.Factor)}}
	case model.YarnRoPE:
		pairs = []Pair{{"rope.scaling.type", "yarn"}, {"rope.scaling.factor", float32(s.Factor)},
			{"rope.scaling.original_context_length", uint32(s.Original)},
			{"rope.scaling.yarn_beta_fast", float32(s.BetaFast)}, {"rope.scaling.yarn_beta_slow", float32(s.BetaSlow)}}
		switch own := 1 + 0.1*math.Log(max(s.Factor, 1)); {
		case c.Latent != nil: // scores are multiplied by the square of 1 + it·ln(factor)
			scale := math.Sqrt(float64(c.AttentionScale) * math.Sqrt(float64(c.HeadDim)))
			pairs = append(pairs, Pair{"rope.scaling.yarn_log_multiplier", float32((scale - 1) / math.Log(s.Factor))})
		case c.Name == "olmo3":
			pairs = append(pairs, Pair{"rope.scaling.attn_factor", s.Attention})
		case Architecture(c) == "mistral3" && s.Attention == 1:
			pairs = append(pairs, Pair{"rope.scaling.yarn_log_multiplier", float32(1)})
		case s.Attention != float32(own): // other architectures: llama.cpp multiplies yarn's own factor by attn_factor
			pairs = append(pairs, Pair{"rope.scaling.attn_factor", float32(float64(s.Attention) / own)})
		}
	case model.LongRoPE:
		pairs = []Pair{{"rope.scaling.original_context_length", uint32(s.Original)},
			{"rope.scaling.attn_factor", s.Attention}}
	}
	if c.QueryScale != 0 {
		pairs = append(pairs, Pair{"attention.temperature_scale", c.QueryScale})
	}
	return pairs
}

// Named is the data of a tensor of float32.
type Named struct {
	Name string
	Data []byte
}

// Divisors returns what RoPE's frequencies are divided by, as the converter computes it, for each tensor of them.
func Divisors(c model.Config) (list []Named) {
	switch c.RoPE.Kind {
	case model.ProportionalRoPE:
		return []Named{{"rope_freqs.weight", floats(proportional(c))}}
	case model.Llama3RoPE:
		return []Named{{"rope_freqs.weight", llama3(c)}}
	case model.LongRoPE:
		return []Named{{"rope_factors_long.weight", floats(c.LongFactors)},
			{"rope_factors_short.weight", floats(c.ShortFactors)}}
	}
	return nil
}

func floats(values []float32) (out []byte) {
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// proportional returns the divisors of heads of which RoPE rotates the first pairs alone.
func proportional(c model.Config) []float32 {
	d := c.HeadDim
	if c.Wide != nil {
		d = c.Wide.HeadDim
	}
	out := slices.Repeat([]float32{1e30}, d/2)
	for i := range int(c.RoPE.Fraction * float64(d) / 2) {
		out[i] = float32(c.RoPE.Factor)
	}
	return out
}

// llama3 returns the divisors of Llama 3's scaling, HeadDim/2 float32.
func llama3(c model.Config) (out []byte) {
	s := c.RoPE
	for i := range c.HeadDim / 2 {
		wavelength := 2 * math.Pi * math.Pow(c.RoPETheta, float64(2*i)/float64(c.HeadDim))
		divisor := s.Factor
		if wavelength < float64(s.Original)/s.HighFactor {
			divisor = 1
		} else if wavelength <= float64(s.Original)/s.LowFactor {
			smooth := (float64(s.Original)/wavelength - s.LowFactor) / (s.HighFactor - s.LowFactor)
			divisor = 1 / ((1-smooth)/s.Factor + smooth)
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(divisor)))
	}
	return out
}
