// Package model holds a model's config, its weights on a device, the memory that its
// steps work in, and the forward pass: a sequence of fused ops on a stream, one function
// for prefill and one for decode.
//
// A model family is a file family_x.go and its entry in families; the tensors of a checkpoint are listed by
// [Config.Tensors].
package model

import (
	"errors"
	"math"

	"reel.internal/reel/kernels"
)

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
	// LocalTheta is RoPETheta of the layers in Local, which have a sliding window in a context that is longer, and of
	// which nothing is scaled; 0: all layers have the same RoPE.
	LocalTheta    float64 `json:",omitempty"`
	Local         []bool  `json:",omitempty"` // by layer
	TiedHead      bool    // the head is the embedding
	Wrapped       bool    // the checkpoint holds other models too, such as one for images; see [Config.Text]
	Bias          bool    // q, k and v have biases
	OutputBias    bool    `json:",omitempty"` // the output projection has a bias
	Sinks         bool    `json:",omitempty"` // each query head has a sink, see [kernels.Attend]
	HeadNorms     bool    // each head of q and k is normed
	ValueNorms    bool    `json:",omitempty"` // and each of v, without a weight
	WidthNorms    bool    `json:",omitempty"` // all heads of q together are normed, and those of k
	FusedQKV      bool    // the checkpoint holds q, k and v in one tensor
	FusedGateUp   bool    // and gate and up in one
	NoNormsBefore bool    `json:",omitempty"` // attention and feed-forward read the residual stream as it is
	NormsAfter    bool    `json:",omitempty"` // their results are normed before they are added
	NormsFromOne  bool    `json:",omitempty"` // the checkpoint holds the weights of norms minus 1
	// Activation is that of the feed-forward's gate.
	Activation kernels.Activation `json:",omitempty"`
	// EmbeddingScale multiplies the embedding, 0: 1. With EmbeddingRoot √Hidden does, rounded to the type of a
	// checkpoint's matrix of 16 bits and to bfloat16 of a quantised one, as in training.
	EmbeddingScale float32 `json:",omitempty"`
	EmbeddingRoot  bool    `json:",omitempty"`
	// ResidualScale multiplies the results of attention and feed-forward before they are added, 0: 1. The residual
	// stream on a device is divided by it, which saves the products and changes no norm, as Eps is divided by its
	// square.
	ResidualScale float32 `json:",omitempty"`
	// StreamDivisor divides the residual stream on a device further, 0: 1. It is a power of two, of a family with
	// NormsAfter, and changes no result but where rows are rounded to float16, which holds nothing over 65504.
	StreamDivisor float32 `json:",omitempty"`
	// InnerDivisor divides the results of gates on a device, 0: 1, for the same reason, and changes as little: the norm
	// after the down projection has Eps divided by its square.
	InnerDivisor float32 `json:",omitempty"`
	// AttentionScale multiplies scores, 0: 1/√HeadDim. ScoreCap bounds them, and LogitsCap the logits; 0: nothing does.
	// LogitsDivisor divides the logits before; 0: 1.
	AttentionScale, ScoreCap, LogitsCap, LogitsDivisor float32 `json:",omitempty"`
	// Interleaved: RoPE rotates neighbours: rows 2·j and 2·j+1 of a head in the checkpoint's q and k.
	Interleaved bool
	Windows     []int   // by layer, as Window returns it; nil: no layer has a window
	EOS         []int32 // end-of-sequence tokens
	// Suppressed tokens are never drawn: suppress_tokens of generation_config.json, ascending, ids below Vocab, at most
	// MaxSuppressed.
	Suppressed []int32 `json:",omitempty"`
	// Quantisation is that of the checkpoint's matrices. GGUF says it with each tensor instead.
	Quantisation Quantisation
	// Latent takes the place of keys and values of heads; nil: each KV head has its own.
	Latent *Latent `json:",omitempty"`
	// Experts take the place of the feed-forward in most layers; nil: there are none.
	Experts *Experts `json:",omitempty"`
	// Further is the number of layers after those of the model that guess tokens after the next one. They are left out.
	Further int `json:",omitempty"`
	// Wide has the layers whose heads are wider; nil: all layers have the same heads.
	Wide *Wide `json:",omitempty"`
	// SharedKV has the layers that use keys and values of others; nil: each has its own.
	SharedKV *SharedKV `json:",omitempty"`
	// PerLayer is the width of the embeddings of its own that each layer adds; 0: there are none. See per_layer.go.
	PerLayer int `json:",omitempty"`
	// LayerScales: the checkpoint has a number for each layer, by which the residual stream is multiplied after it.
	LayerScales bool `json:",omitempty"`
	// published has the published names of tensors of a layer where they are not Llama's, by Llama's.
	published map[string]string
	// Embedding makes the config that of a model for embeddings; nil: the model draws tokens.
	Embedding *Embedding `json:",omitempty"`
	headless  bool       // architectures names the model without a head
	// Eagle makes the config that of an EAGLE-3 head; nil: it is a model's.
	Eagle *Eagle `json:",omitempty"`
	// Ranks divide the pass between them; 0: 1. It is the device's number, and no checkpoint has it.
	Ranks int `json:",omitempty"`
}

// attentionScale returns what multiplies scores.
func (c Config) attentionScale() float32 {
	if c.AttentionScale != 0 {
		return c.AttentionScale
	}
	return float32(1 / math.Sqrt(float64(c.HeadDim)))
}

// setAttentionScale sets AttentionScale, which is 0 for the usual scale.
func (c *Config) setAttentionScale(scale float64) {
	c.AttentionScale = 0
	if usual := c.attentionScale(); float32(scale) != usual {
		c.AttentionScale = float32(scale)
	}
}

// residualScale returns ResidualScale, or 1.
func (c Config) residualScale() float32 {
	if c.ResidualScale != 0 {
		return c.ResidualScale
	}
	return 1
}

// streamDivisor returns what the residual stream on a device is divided by, see ResidualScale and StreamDivisor.
func (c Config) streamDivisor() float32 { return c.residualScale() * c.branchDivisor() }

// branchDivisor returns StreamDivisor, or 1.
func (c Config) branchDivisor() float32 {
	if c.StreamDivisor != 0 {
		return c.StreamDivisor
	}
	return 1
}

// innerDivisor returns InnerDivisor, or 1.
func (c Config) innerDivisor() float32 {
	if c.InnerDivisor != 0 {
		return c.InnerDivisor
	}
	return 1
}

// streamEps returns the Eps of norms of the residual stream.
func (c Config) streamEps() float32 { return c.RMSNormEps / (c.streamDivisor() * c.streamDivisor()) }

// layerEps returns the Eps of norms before attention and feed-forward.
func (c Config) layerEps() float32 {
	if c.NoNormsBefore {
		return kernels.NoNorm
	}
	return c.streamEps()
}

// preparesHeads reports whether q, k or v are changed before RoPE.
func (c Config) preparesHeads() bool { return c.Bias || c.HeadNorms || c.WidthNorms }

// local reports whether a layer has the RoPE of LocalTheta.
func (c Config) local(layer int) bool { return c.LocalTheta != 0 && c.Local[layer] }

// rotated returns the number of elements of a head that RoPE rotates.
func (c Config) rotated() int {
	if c.Rotated > 0 {
		return c.Rotated
	}
	return c.tableDim()
}

// tableDim returns the elements of a head that the table of RoPE is for: all of them, or of latent attention those that
// it rotates.
func (c Config) tableDim() int {
	if c.Latent != nil {
		return c.Latent.Rope
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
