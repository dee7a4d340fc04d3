package model

import (
	"fmt"
	"math"
	"slices"
)

// RoPEScaling extends RoPE beyond the context of pretraining. The zero value scales nothing.
type RoPEScaling struct {
	Kind       RoPEKind
	Factor     float64
	LowFactor  float64 // low_freq_factor, of Llama3RoPE
	HighFactor float64 // high_freq_factor, of Llama3RoPE
	Original   int     // tokens: original_max_position_embeddings
	BetaFast   float64 // of YarnRoPE
	BetaSlow   float64 // of YarnRoPE
	Whole      bool    // the bounds of YarnRoPE's ramp are rounded to whole frequencies
	Long       bool    // LongRoPE has its long factors; [Load] sets it
	Fraction   float64 `json:",omitempty"` // of ProportionalRoPE: the part of a head's pairs that rotate
	Attention  float32 // multiplies cos and sin, which transformers calls attention_factor; 0: 1
}

// RoPEKind is a rope_type of transformers.
type RoPEKind string

// The kinds of scaling. The frequencies of LongRoPE are divided by one of two lists, see [Config].
const (
	Llama3RoPE RoPEKind = "llama3"
	LinearRoPE RoPEKind = "linear"
	YarnRoPE   RoPEKind = "yarn"
	LongRoPE   RoPEKind = "longrope"
	// ProportionalRoPE has the frequencies of whole heads, of which only the first ones rotate.
	ProportionalRoPE RoPEKind = "proportional"
)

// String names the kind and, of LongRoPE, the factors in use; empty: nothing is scaled.
func (s RoPEScaling) String() string {
	switch {
	case s.Kind != LongRoPE:
		return string(s.Kind)
	case s.Long:
		return "longrope, long factors"
	}
	return "longrope, short factors"
}

// check refuses values out of bounds.
func (s RoPEScaling) check() error {
	for _, v := range []struct {
		kinds        []RoPEKind
		field        string
		value, least float64
		most         float64
	}{{[]RoPEKind{Llama3RoPE, LinearRoPE, YarnRoPE, ProportionalRoPE}, "factor", s.Factor, 1, maxScale},
		{[]RoPEKind{Llama3RoPE}, "low_freq_factor", s.LowFactor, minScale, maxScale},
		{[]RoPEKind{Llama3RoPE}, "high_freq_factor", s.HighFactor, minScale, maxScale},
		{[]RoPEKind{YarnRoPE}, "beta_fast", s.BetaFast, minScale, maxScale},
		{[]RoPEKind{YarnRoPE}, "beta_slow", s.BetaSlow, minScale, maxScale},
		{[]RoPEKind{YarnRoPE, LongRoPE}, "attention_factor", float64(s.attention()), minAttention, maxAttention},
		{[]RoPEKind{Llama3RoPE, YarnRoPE, LongRoPE}, "original_max_position_embeddings", float64(s.Original), 1,
			maxContext}} {
		if slices.Contains(v.kinds, s.Kind) && !(v.value >= v.least && v.value <= v.most) {
			return outside("rope_scaling: "+v.field, v.value, v.least, v.most)
		}
	}
	if s.Kind == Llama3RoPE && s.HighFactor <= s.LowFactor {
		return fmt.Errorf("model: config.json: rope_scaling: high_freq_factor is %g, wants more than low_freq_factor, "+
			"which is %g", s.HighFactor, s.LowFactor)
	}
	return nil
}

// attention returns what cos and sin are multiplied by.
func (s RoPEScaling) attention() float32 {
	if s.Attention == 0 {
		return 1
	}
	return s.Attention
}

// scaled returns a frequency, in radians per token, after scaling. i is its index, of d/2.
func (s RoPEScaling) scaled(frequency float32, theta float64, i, d int) float32 {
	switch s.Kind {
	case Llama3RoPE:
		return s.llama3(frequency)
	case LinearRoPE:
		return float32(float64(frequency) / s.Factor)
	case YarnRoPE:
		return s.yarn(frequency, theta, i, d)
	case ProportionalRoPE:
		if i >= int(s.Fraction*float64(d)/2) {
			return 0
		}
		return float32(float64(frequency) / s.Factor)
	}
	return frequency
}

// llama3 returns a frequency of Llama3RoPE. Wavelengths above Original/LowFactor tokens are multiplied by Factor, those
// below Original/HighFactor stay, and those between are interpolated.
// (Meta, "The Llama 3 Herd of Models", 2024, and its reference code.)
func (s RoPEScaling) llama3(frequency float32) float32 {
	rotations := float64(s.Original) * float64(frequency) / (2 * math.Pi) // over the original context
	keep := min(max((rotations-s.LowFactor)/(s.HighFactor-s.LowFactor), 0), 1)
	return float32((1-keep)*float64(frequency)/s.Factor + keep*float64(frequency))
}

// yarn returns frequency i of YarnRoPE. Those that turn more than BetaFast times over the original context stay, those
// that turn less than BetaSlow times are divided by Factor, and those between are interpolated by their index.
// (Peng et al., "YaRN", 2023; transformers, modeling_rope_utils.py.)
func (s RoPEScaling) yarn(frequency float32, theta float64, i, d int) float32 {
	index := func(turns float64) float64 { // of the frequency that turns so many times
		return float64(d) * math.Log(float64(s.Original)/(turns*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high := index(s.BetaFast), index(s.BetaSlow)
	if s.Whole {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(d-1))
	if low == high {
		high += 0.001
	}
	slow := min(max((float64(i)-low)/(high-low), 0), 1)
	return float32(slow*float64(frequency)/s.Factor + (1-slow)*float64(frequency))
}

// yarnAttention returns the attention factor of YarnRoPE for a factor and one of mscale's fields.
func yarnAttention(factor, scale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*scale*math.Log(factor) + 1
}

// withFactors returns c with the divisors of longrope that its context asks for.
func (c Config) withFactors() Config {
	if c.LongFactors == nil {
		return c
	}
	c.RoPEDivisors = c.ShortFactors
	if c.longFactors() {
		c.RoPEDivisors, c.RoPE.Long = c.LongFactors, true
	}
	c.ShortFactors, c.LongFactors = nil, nil
	return c
}

// longFactors reports whether the context is longer than that of pretraining.
func (c Config) longFactors() bool { return c.Context > c.RoPE.Original }

// checkFactors refuses lists of longrope's divisors that have another length, or values out of bounds.
func (c Config) checkFactors() error {
	if c.RoPE.Kind != LongRoPE {
		return nil
	}
	for _, list := range []struct {
		field  string
		values []float32
	}{{"short_factor", c.ShortFactors}, {"long_factor", c.LongFactors}} {
		if len(list.values) != c.rotated()/2 {
			return fmt.Errorf("model: config.json: rope_scaling: %s has %d entries, wants %d, one for each pair that "+
				"RoPE rotates", list.field, len(list.values), c.rotated()/2)
		}
		for _, v := range list.values {
			if !(v >= minScale && v <= maxScale) {
				return outside("rope_scaling: "+list.field, v, minScale, maxScale)
			}
		}
	}
	return nil
}

// setDivisors keeps the divisors of a GGUF file. If they are those of a published Llama 3, to the rounding of float32,
// c gets its scaling instead, so that the table is the same as with config.json.
func (c *Config) setDivisors(divisors []float32) {
	for original := 64; original <= 1<<20; original *= 2 {
		s := RoPEScaling{Kind: Llama3RoPE, Factor: float64(slices.Max(divisors)), LowFactor: 1, HighFactor: 4,
			Original: original}
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
		if got := float64(f) / float64(s.llama3(f)); !(math.Abs(got-float64(divisor)) <= 1e-4*got) {
			return false
		}
	}
	return true
}
