package model

import (
	"fmt"
	"slices"

	"reel.internal/reel/generator/internal/weights"
)

// rope sets RoPE's scaling, the part of a head that it rotates, and its divisors.
func (r *ggufReader) rope(c *Config) {
	if n := r.number(keyRotated, maxDimension, c.tableDim()); n != c.tableDim() {
		c.Rotated = n
	}
	if r.fail(c.checkRotated()); r.err != nil {
		return
	}
	c.RoPE = r.scaling(*c)
	if c.RoPE.Kind == LongRoPE {
		c.ShortFactors, c.LongFactors = r.factors(c, ggufShort), r.factors(c, ggufLong)
	}
	if r.has(r.arch + "." + keyQueryScale) {
		r.queryScale(c)
	}
	if r.err == nil && r.hasTensor(ggufDivisors) {
		if slices.Contains(r.family.scalings, ProportionalRoPE) {
			r.proportional(c)
		} else {
			r.divisors(c)
		}
	}
}

// scaling reads the kind of scaling and its numbers. Longrope has tensors and no kind. (llama.cpp: llama-context.cpp,
// where the attention factor of yarn is computed.)
func (r *ggufReader) scaling(c Config) RoPEScaling {
	kind, _ := r.metadata.String(r.arch + "." + keyScaling)
	if (kind == "" || kind == "longrope") && r.hasTensor(ggufLong) {
		return RoPEScaling{Kind: LongRoPE, Original: r.number(keyOriginal, maxContext, c.Context),
			Attention: float32(r.float(keyAttnFactor, minAttention, maxAttention, 1))}
	}
	factor, attention := r.float(keyScale, 1, maxScale, 1), r.float(keyAttnFactor, minAttention, maxAttention, 1)
	switch kind {
	case "", "none":
		if factor != 1 || attention != 1 {
			r.refuse("%s.%s or attn_factor is not 1, and there is no scaling", r.arch, keyScale)
		}
		return RoPEScaling{}
	case "linear":
		if attention != 1 {
			r.refuse("%s.%s is %v, and the scaling linear", r.arch, keyAttnFactor, attention)
		}
		return RoPEScaling{Kind: LinearRoPE, Factor: factor}
	case "yarn":
		return r.yarn(c, factor, attention)
	}
	r.refuse("%s.%s is %.40q", r.arch, keyScaling, kind)
	return RoPEScaling{}
}

// yarn reads the other numbers of yarn.
func (r *ggufReader) yarn(c Config, factor, attention float64) RoPEScaling {
	if mix := r.float(keyYarnMix, minScale, maxScale, 1); mix != 1 {
		r.refuse("%s.%s is %v", r.arch, keyYarnMix, mix)
	}
	own := yarnAttention(factor, 1)
	if r.yarnLog() {
		own /= yarnAttention(factor, r.float(keyYarnLog, minScale, maxScale, 1))
	}
	return RoPEScaling{Kind: YarnRoPE, Factor: factor, Original: r.number(keyOriginal, maxContext, c.Context),
		BetaFast: r.float(keyBetaFast, minScale, maxScale, 32), BetaSlow: r.float(keyBetaSlow, minScale, maxScale, 1),
		Whole: true, Attention: float32(own * attention)}
}

// yarnLog reports whether the logarithm of yarn's factor has a multiplier. 0 is the same as none.
func (r *ggufReader) yarnLog() bool {
	f, ok := r.metadata.Float(r.arch + "." + keyYarnLog)
	return r.has(r.arch+"."+keyYarnLog) && !(ok && f == 0)
}

// queryScale lowers the context to where queries are scaled by their position.
func (r *ggufReader) queryScale(c *Config) {
	scale := r.float(keyQueryScale, 0, maxScale, 1)
	from := r.number(keyQueryFrom, maxContext, max(1, c.RoPE.Original))
	if c.QueryScale = float32(scale); r.err == nil && scale != 0 && c.Context > from {
		c.Context, c.ContextReason = from, queryScaleReason
	}
}

// factors reads divisors of RoPE's frequencies.
func (r *ggufReader) factors(c *Config, name string) []float32 {
	values, file := r.unbounded(c, name)
	for _, d := range values {
		if !(d >= minScale && d <= maxScale) {
			r.fail(fmt.Errorf("%w: %s: %s has %v, wants %v to %v", ErrTensor, file, name, d, minScale, maxScale))
		}
	}
	return values
}

// unbounded reads divisors of any size, and returns their file too. nil: there are none of the type and number.
func (r *ggufReader) unbounded(c *Config, name string) (values []float32, file string) {
	t, err := r.tensors.Tensor(name)
	switch {
	case err != nil:
		r.fail(err)
		return nil, ""
	case t.DType != weights.F32 || !slices.Equal(t.Shape, []int{c.rotated() / 2}):
		r.fail(fmt.Errorf("%w: %s: %s is %v%v, wants F32[%d]", ErrTensor, t.File, name, t.DType, t.Shape,
			c.rotated()/2))
		return nil, ""
	}
	return toFloat32(t), t.File
}

// divisors sets the divisors that the file has for all contexts.
func (r *ggufReader) divisors(c *Config) {
	if c.RoPE.Kind != "" {
		r.refuse("%s beside the scaling %s", ggufDivisors, c.RoPE.Kind)
	}
	if values := r.factors(c, ggufDivisors); r.err == nil {
		c.setDivisors(values)
	}
}
