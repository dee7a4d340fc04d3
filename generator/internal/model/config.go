// Package model holds a model's shape, its weights on a device, and the forward
// pass: one readable sequence of fused ops on a stream.
package model

import "errors"

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
