// Package model holds a model's shape, its weights on a device, and the forward
// pass: one readable sequence of fused ops on a stream.
package model

import (
	"errors"
	"fmt"
	"slices"
)

// ErrUnsupported marks a checkpoint that asks for something this build does not
// compute. The error names it.
var ErrUnsupported = errors.New("model: not supported")

// Config is the shape of a model, from config.json. The zero values of the
// fields after RoPETheta are those of Llama 2.
type Config struct {
	Name    string // model_type
	Vocab   int
	Hidden  int // width of the residual stream
	Inner   int // width of the feed-forward
	Layers  int
	Heads   int // query heads
	KVHeads int
	HeadDim int
	Context int // tokens of a sequence at most

	RMSNormEps float32
	RoPETheta  float64
	RoPE       RoPEScaling
	TiedHead   bool  // the head is the embedding
	Bias       bool  // the products of q, k and v have biases
	HeadNorms  bool  // each head of q and k is normed
	Fused      bool  // the checkpoint has q, k, v in one tensor, and gate and up
	Windows    []int // of each layer, how many positions a row sees, 0 for all; nil: all layers see all
	EOS        []int32
}

// Window is how many positions a row sees in a layer; 0 is all.
func (c Config) Window(layer int) int {
	if c.Windows == nil {
		return 0
	}
	return c.Windows[layer]
}

// Bounds of a config. Products of three dimensions fit an int64, and a list of
// all tensors fits some megabytes.
const (
	maxDimension = 1 << 20
	maxLayers    = 4096
	maxHeadDim   = 1024
)

func (c Config) check() error {
	for _, d := range []struct {
		field   string
		n, most int
	}{{"vocab_size", c.Vocab, maxDimension}, {"hidden_size", c.Hidden, maxDimension}, {"intermediate_size", c.Inner, maxDimension},
		{"num_hidden_layers", c.Layers, maxLayers}, {"num_attention_heads", c.Heads, maxDimension},
		{"num_key_value_heads", c.KVHeads, maxDimension}, {"head_dim", c.HeadDim, maxHeadDim}, {"max_position_embeddings", c.Context, maxDimension}} {
		if d.n < 1 || d.n > d.most {
			return fmt.Errorf("model: config.json: %s is %d, wants 1 to %d", d.field, d.n, d.most)
		}
	}
	if c.Heads%c.KVHeads != 0 || c.HeadDim%2 != 0 {
		return fmt.Errorf("model: config.json: %d heads of %d elements over %d KV heads do not divide", c.Heads, c.HeadDim, c.KVHeads)
	}
	if !(c.RMSNormEps > 0) || !(c.RoPETheta > 0) {
		return fmt.Errorf("model: config.json: rms_norm_eps %g and rope_theta %g must be above 0", c.RMSNormEps, c.RoPETheta)
	}
	if slices.ContainsFunc(c.EOS, func(id int32) bool { return id < 0 || int(id) >= c.Vocab }) {
		return fmt.Errorf("model: eos_token_id %v is not below vocab_size %d", c.EOS, c.Vocab)
	}
	return c.RoPE.check()
}
