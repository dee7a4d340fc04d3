package model

import (
	"fmt"
	"slices"
)

// Bounds of a config's numbers. Every published checkpoint of the families is well
// within them. With them the sum of all parameters and their bytes fit an int64, a
// list of all tensors takes some megabytes, and RoPE's angles are finite.
const (
	maxDimension = 1 << 20 // also of all heads together
	maxLayers    = 4096
	maxHeads     = 4096
	maxHeadDim   = 1024
	maxContext   = 1 << 23 // tokens; 4,194,304 are the most that were published

	minEps, maxEps     = 1e-30, 1.0
	minTheta, maxTheta = 1.0, 1e15
	minScale, maxScale = 1e-6, 1e6 // of llama3's factors
)

// outside is the error for a field whose value is out of its bounds.
func outside(field string, value, least, most any) error {
	return fmt.Errorf("model: config.json: %s is %v, wants %v to %v", field, value, least, most)
}

// check refuses dimensions out of bounds, and those that do not fit each other.
func (c Config) check() error {
	for _, d := range []struct {
		field   string
		n, most int
	}{{"vocab_size", c.Vocab, maxDimension}, {"hidden_size", c.Hidden, maxDimension},
		{"intermediate_size", c.Inner, maxDimension}, {"num_hidden_layers", c.Layers, maxLayers},
		{"num_attention_heads", c.Heads, maxHeads}, {"num_key_value_heads", c.KVHeads, maxHeads},
		{"head_dim", c.HeadDim, maxHeadDim}, {"max_position_embeddings", c.Context, maxContext}} {
		if d.n < 1 || d.n > d.most {
			return outside(d.field, d.n, 1, d.most)
		}
	}
	if c.Heads*c.HeadDim > maxDimension {
		return fmt.Errorf("model: config.json: %d heads of %d elements are %d together, wants at most %d",
			c.Heads, c.HeadDim, c.Heads*c.HeadDim, maxDimension)
	}
	if c.Heads%c.KVHeads != 0 || c.HeadDim%2 != 0 {
		return fmt.Errorf("model: config.json: %d heads of %d elements over %d KV heads do not divide",
			c.Heads, c.HeadDim, c.KVHeads)
	}
	if slices.ContainsFunc(c.EOS, func(id int32) bool { return id < 0 || int(id) >= c.Vocab }) {
		return fmt.Errorf("model: eos_token_id %v is not below vocab_size %d", c.EOS, c.Vocab)
	}
	return c.RoPE.check()
}

// checkNumbers refuses numbers of the file that check does not see as they are there:
// those that are rounded, and those that only some layers or scalings use.
func (f *configFile) checkNumbers() error {
	if !(f.Eps >= minEps && f.Eps <= maxEps) {
		return outside("rms_norm_eps", f.Eps, minEps, maxEps)
	}
	for _, theta := range []*float64{f.Theta, f.ropes().Theta} {
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
		{"original_max_position_embeddings", f.OriginalMax, maxContext},
		{"original_max_position_embeddings", f.ropes().Original, maxContext}} {
		if d.n < 0 || d.n > d.most {
			return outside(d.field, d.n, 0, d.most)
		}
	}
	return nil
}
