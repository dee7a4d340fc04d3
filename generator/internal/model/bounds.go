package model

import (
	"errors"
	"fmt"
	"slices"
)

// Bounds of the numbers in a config. Every published checkpoint of the families is well
// within them. They ensure that the number of parameters and their bytes fit an int64,
// that a list of all tensors takes a few megabytes, and that RoPE's angles are finite.
const (
	maxDimension = 1 << 20 // also bounds the width of all heads together
	maxLayers    = 4096
	maxHeads     = 4096
	maxHeadDim   = 1024
	maxContext   = 1 << 23 // tokens; the longest published context is 4,194,304

	minEps, maxEps     = 1e-30, 1.0
	minTheta, maxTheta = 1.0, 1e15
	minScale, maxScale = 1e-6, 1e6 // of the factors of RoPE's scalings

	minResidual = 1e-3 // of what multiplies the results of layers

	// MaxSuppressed bounds the tokens that a model suppresses: each takes the place of one bias of a request.
	MaxSuppressed = 256

	minFraction                = 1e-3        // of a head that RoPE rotates
	minAttention, maxAttention = 0.01, 100.0 // of cos and sin
)

// outside returns the error for a field whose value is out of its bounds.
func outside(field string, value, least, most any) error {
	return fmt.Errorf("model: config.json: %s is %v, wants %v to %v", field, value, least, most)
}

// dimension is a number of a config that is at least 1.
type dimension struct {
	field   string
	n, most int
}

// checkDimensions refuses the first dimension that is out of bounds.
func checkDimensions(list ...dimension) error {
	for _, d := range list {
		if d.n < 1 || d.n > d.most {
			return outside(d.field, d.n, 1, d.most)
		}
	}
	return nil
}

// check refuses dimensions that are out of bounds or do not fit each other.
func (c Config) check() error {
	if err := checkDimensions(dimension{"vocab_size", c.Vocab, maxDimension},
		dimension{"hidden_size", c.Hidden, maxDimension}, dimension{"intermediate_size", c.Inner, maxDimension},
		dimension{"num_hidden_layers", c.Layers, maxLayers}, dimension{"num_attention_heads", c.Heads, maxHeads},
		dimension{"num_key_value_heads", c.KVHeads, maxHeads}, dimension{"head_dim", c.HeadDim, maxHeadDim},
		dimension{"max_position_embeddings", c.Context, maxContext}); err != nil {
		return err
	}
	if err := c.checkHeads(); err != nil {
		return err
	}
	if slices.ContainsFunc(c.EOS, func(id int32) bool { return id < 0 || int(id) >= c.Vocab }) {
		return fmt.Errorf("model: eos_token_id is %v, wants ids from 0 to %d, below vocab_size", c.EOS, c.Vocab-1)
	}
	if n, most := len(c.Suppressed), min(MaxSuppressed, c.Vocab-1); n > most {
		return fmt.Errorf("model: generation_config.json: suppress_tokens has %d tokens, wants at most %d", n, most)
	}
	if c.RoPE.Kind == YarnRoPE && c.RoPETheta == 1 { // all frequencies are equal, so none has an index
		return errors.New("model: config.json: rope_theta is 1, wants more with yarn")
	}
	return errors.Join(c.RoPE.check(), c.checkRotated(), c.checkFactors(), c.Experts.check(c),
		c.Latent.check(c), c.checkLayers())
}

// checkHeads refuses heads that do not fit each other.
func (c Config) checkHeads() error {
	if c.Heads*c.HeadDim > maxDimension {
		return fmt.Errorf("model: %d heads of %d elements have %d together, wants at most %d",
			c.Heads, c.HeadDim, c.Heads*c.HeadDim, maxDimension)
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("model: num_attention_heads %d is not divisible by num_key_value_heads %d",
			c.Heads, c.KVHeads)
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("model: head_dim is %d, wants an even number", c.HeadDim)
	}
	return nil
}

// multiplierBounds returns the bounds of a field that multiplies, divides or caps.
func multiplierBounds(field string) (least, most float64) {
	if field == "residual_multiplier" {
		return minResidual, 1 / minResidual
	}
	return minScale, maxScale
}

// checkMultipliers refuses scales and bounds of scores and logits that are out of bounds.
func (c Config) checkMultipliers() error {
	for _, v := range []struct {
		field string
		value float32 // 0: the field is absent
	}{{"embedding_multiplier", c.EmbeddingScale}, {"residual_multiplier", c.ResidualScale},
		{"attention_multiplier", c.AttentionScale}, {"logits_scaling", c.LogitsDivisor},
		{"attn_logit_softcapping", c.ScoreCap}, {"final_logit_softcapping", c.LogitsCap}} {
		least, most := multiplierBounds(v.field)
		if x := float64(v.value); !(x >= least && x <= most || x == 0) {
			return outside(v.field, v.value, least, most)
		}
	}
	return nil
}

// checkRotated refuses a part of a head that RoPE cannot rotate.
func (c Config) checkRotated() error {
	if r := c.rotated(); r%2 != 0 || r > c.tableDim() {
		return fmt.Errorf("model: partial_rotary_factor makes RoPE rotate %d of %d elements of a head, wants an "+
			"even number",
			r, c.tableDim())
	}
	return nil
}

// checkNumbers refuses numbers that check cannot judge, because Config holds them rounded
// or holds them only for some layers or scalings.
func (f *configFile) checkNumbers() error {
	if !(f.Eps >= minEps && f.Eps <= maxEps) {
		return outside("rms_norm_eps", f.Eps, minEps, maxEps)
	}
	for _, fraction := range []float64{f.Fraction, f.ropes().fraction()} {
		if !(fraction >= minFraction && fraction <= 1) {
			return outside("partial_rotary_factor", fraction, minFraction, 1)
		}
	}
	thetas := []*float64{f.Theta, f.ropes().Theta}
	if f.localRoPE != nil {
		thetas = append(thetas, f.localRoPE.Theta)
	}
	for _, theta := range thetas {
		if theta != nil && !(*theta >= minTheta && *theta <= maxTheta) {
			return outside("rope_theta", *theta, minTheta, maxTheta)
		}
	}
	window := 0
	if f.Window != nil {
		window = *f.Window
	}
	for _, d := range []struct {
		field   string
		n, most int
	}{{"sliding_window", window, maxContext}, {"max_window_layers", f.WindowFrom, maxLayers},
		{"no_rope_layer_interval", f.NoRoPEInterval, maxLayers},
		{"original_max_position_embeddings", f.OriginalMax, maxContext},
		{"original_max_position_embeddings", f.ropes().Original, maxContext}} {
		if d.n < 0 || d.n > d.most {
			return outside(d.field, d.n, 0, d.most)
		}
	}
	return nil
}
