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
	// RoPEDivisors divide the frequencies, one each; nil: none. GGUF files have them, and no RoPE besides; of longrope
	// they are the set of factors that [Load] chose.
	RoPEDivisors []float32
	// ShortFactors and LongFactors are the divisors of longrope, for contexts of at most RoPE.Original tokens and for
	// longer ones. [Load] chooses one by Context, once for all positions, and clears both.
	ShortFactors, LongFactors []float32
	Rotated                   int    // elements of each head that RoPE rotates; 0: all
	NoRoPE                    []bool // by layer: q and k are not rotated; nil: all layers rotate
	// QueryScale is llama_4_scaling_beta: 1 + it·ln(1 + ⌊position/RoPE.Original⌋) multiplies q. That is 1 in the
	// context that is served.
	QueryScale float32
	// ContextReason says why Context is all that is served; empty: the checkpoint promises no more.
	ContextReason string
	TiedHead      bool // the head is the embedding
	Wrapped       bool // the checkpoint holds other models too, such as one for images; see [Config.Text]
	Bias          bool // q, k and v have biases
	HeadNorms     bool // each head of q and k is normed
	Fused         bool // the checkpoint holds q, k and v in one tensor, and gate and up in another
	// Interleaved: RoPE rotates neighbours: rows 2·j and 2·j+1 of a head in the checkpoint's q and k.
	Interleaved bool
	Windows     []int   // by layer, as Window returns it; nil: no layer has a window
	EOS         []int32 // end-of-sequence tokens
	// Quantisation is that of the checkpoint's matrices. GGUF says it with each tensor instead.
	Quantisation Quantisation
	// Experts take the place of the feed-forward in most layers; nil: there are none.
	Experts *Experts `json:",omitempty"`
	// Eagle makes the config that of an EAGLE-3 head; nil: it is a model's.
	Eagle *Eagle `json:",omitempty"`
}

// rotated returns the number of elements of a head that RoPE rotates.
func (c Config) rotated() int {
	if c.Rotated > 0 {
		return c.Rotated
	}
	return c.HeadDim
}

// rotates reports whether a layer has RoPE.
func (c Config) rotates(layer int) bool { return c.NoRoPE == nil || !c.NoRoPE[layer] }

// Window returns the sliding window of a layer: the number of positions that a row
// attends to, its own included; 0 means all.
func (c Config) Window(layer int) int {
	if c.Windows == nil {
		return 0
	}
	return c.Windows[layer]
}
