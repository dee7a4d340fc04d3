package model

import (
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

// Model is the weights of a model on a device.
type Model struct {
	Config Config

	embedding      kernels.Weight // [vocab][hidden]
	rope           device.Buffer  // float32 [context][HeadDim/2][cos, sin]
	noRoPE         device.Buffer  // the same of cos 1 and sin 0, for layers without RoPE; or none
	localRoPE      device.Buffer  // the same of Config.LocalTheta, or none
	layers         []layer
	norm           device.Buffer   // float32 [hidden]
	embeddingScale float32         // of the rows of embedding that begin the residual stream
	head           kernels.Weight  // [vocab][hidden]; the embedding if it is tied
	eagle          eagleWeights    // of an EAGLE-3 head
	allocated      []device.Buffer // every allocation, to be freed
}

// eagleWeights is what an EAGLE-3 head has beside its layer, whose attentionNorm is that of the embedding, then that of
// the feature, and whose q, k and v take both.
type eagleWeights struct {
	features  kernels.Weight  // [hidden][parts*Target]
	allNorm   device.Buffer   // float32 [parts*Target], or none
	partNorms []device.Buffer // float32 [Target] each, or none
	tokens    device.Buffer   // int32 [Config.Vocab]: the model's tokens
}

// layer is the weights of one transformer block.
type layer struct {
	attentionNorm                    device.Buffer  // float32 [hidden]
	q, k, v                          kernels.Weight // [Heads*HeadDim][hidden], [KVHeads*HeadDim][hidden] twice
	bias                             device.Buffer  // float32 [Heads*HeadDim + 2*KVHeads*HeadDim]: q, k, v; or none
	headNorms                        device.Buffer  // float32 [2][HeadDim]: q, k; or none
	widthNorms                       device.Buffer  // float32 [Heads*HeadDim + KVHeads*HeadDim]: q, k; or none
	output                           kernels.Weight // [hidden][Heads*HeadDim]
	feedForwardNorm                  device.Buffer  // float32 [hidden]
	gate, up                         kernels.Weight // [inner][hidden]
	down                             kernels.Weight // [hidden][inner]
	afterAttention, afterFeedForward device.Buffer  // float32 [hidden]: norms of their results; or none
}

// matrices returns the seven weight matrices of a layer.
func (l *layer) matrices() [7]kernels.Weight {
	return [...]kernels.Weight{l.q, l.k, l.v, l.output, l.gate, l.up, l.down}
}

// products returns the weights of a layer's products.
func (l *layer) products() (qkv, output, gateUp, down []kernels.Weight) {
	return []kernels.Weight{l.q, l.k, l.v}, []kernels.Weight{l.output}, []kernels.Weight{l.gate, l.up},
		[]kernels.Weight{l.down}
}

// Weights returns a buffer that only this model has, to identify its weights.
func (m *Model) Weights() device.Buffer { return m.head.Data }
