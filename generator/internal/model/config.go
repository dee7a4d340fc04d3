// Package model holds a model's config, its weights on a device, the memory that its
// steps work in, and the forward pass: a sequence of fused ops on a stream, one function
// for prefill and one for decode.
//
// A model family is an entry of families; the tensors of a checkpoint are listed by
// [Config.Tensors].
package model

import "errors"

// ErrUnsupported means that a checkpoint asks for something that this build does not
// compute. The error names it.
var ErrUnsupported = errors.New("model: not supported")

// Config is the shape of a model, from config.json or from GGUF. The zero values of the fields after
// RoPETheta describe Llama 2.
type Config struct {
	Name    string // model_type
	Vocab   int
	Hidden  int // width of the residual stream
	Inner   int // width of the feed-forward
	Layers  int
	Heads   int // query heads
	KVHeads int
	HeadDim int
	Context int // most tokens of a sequence

	RMSNormEps float32
	RoPETheta  float64
	RoPE       RoPEScaling
	// RoPEDivisors divide the frequencies, one each; nil: none. Only GGUF files have them, and no RoPE besides.
	RoPEDivisors []float32
	TiedHead     bool // the head is the embedding
	Bias         bool // q, k and v have biases
	HeadNorms    bool // each head of q and k is normed
	Fused        bool // the checkpoint holds q, k and v in one tensor, and gate and up in another
	// Interleaved: in each head of q and k, row 2·j of the checkpoint is ours j, and row 2·j+1 is j + HeadDim/2.
	Interleaved bool
	Windows     []int   // by layer, as Window returns it; nil: no layer has a window
	EOS         []int32 // end-of-sequence tokens
	// Quantisation is that of the checkpoint's matrices. GGUF says it with each tensor instead.
	Quantisation Quantisation
}

// Window returns the sliding window of a layer: the number of positions that a row
// attends to, its own included; 0 means all.
func (c Config) Window(layer int) int {
	if c.Windows == nil {
		return 0
	}
	return c.Windows[layer]
}
