package model

import (
	"slices"

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
	head           kernels.Weight  // [vocab][hidden]; the embedding if it is tied and there is one rank
	perLayer       perLayerWeights // of a model whose layers have embeddings of their own
	eagle          eagleWeights    // of an EAGLE-3 head
	takesTags      bool            // whether there are kernels for tagged values over all weights of a pass
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
	headNorms                        device.Buffer  // float32 [HeadDim] each: q, k, with ValueNorms v's ones; or none
	widthNorms                       device.Buffer  // float32 [Heads*HeadDim + KVHeads*HeadDim]: q, k; or none
	output                           kernels.Weight // [hidden][Heads*HeadDim]
	outputBias                       device.Buffer  // float32 [hidden], or none
	sinks                            device.Buffer  // float32 [Heads], or none
	feedForwardNorm                  device.Buffer  // float32 [hidden]
	gate, up                         kernels.Weight // [inner][hidden]; with experts [Count*Experts.Inner][hidden]
	down                             kernels.Weight // [hidden][inner]; with experts [Count*hidden][Experts.Inner]
	router                           router         // of a layer with experts
	shared                           feedForward    // of a layer with experts, of all rows; or none
	latent                           latentWeights  // in the place of k and v, or none
	afterAttention, afterFeedForward device.Buffer  // float32 [hidden]: norms of their results; or none
	perLayer                         layerEmbedding // or none
	scale                            float32        // of the residual stream after the layer
}

// feedForward is the weights of one beside a layer's experts.
type feedForward struct {
	gate, up, down kernels.Weight // [Shared][hidden] twice, [hidden][Shared]
}

// router is what a layer with experts has beside their matrices.
type router struct {
	weights                    device.Buffer // float32 [Count][hidden]; none: the layer has no experts
	bias, choice               device.Buffer // float32 [Count], or none
	gateBias, upBias, downBias device.Buffer // float32 [rows of the matrix], or none
	// norm is that before the router, expertsNorm that before the experts: float32 [hidden].
	norm, expertsNorm device.Buffer
	scales            device.Buffer // float32 [Count], or none: of the experts' weights
	// afterShared and afterExperts are float32 [hidden]: norms of the results of experts beside a feed-forward; or none.
	afterShared, afterExperts device.Buffer
}

// sparse reports whether a layer has experts.
func (l *layer) sparse() bool { return !l.router.weights.IsZero() }

// dense returns the matrices of a layer that a step reads whole.
func (l *layer) dense() []kernels.Weight {
	qkv, _, _, _ := l.products()
	all := append(slices.CompactFunc(qkv, func(a, b kernels.Weight) bool { return a.Data == b.Data }), l.output,
		l.perLayer.gate, l.perLayer.projection)
	if all = append(all, l.latent.matrices()...); l.sparse() {
		return append(all, l.shared.gate, l.shared.up, l.shared.down)
	}
	return append(all, l.gate, l.up, l.down)
}

// experts returns the matrices of a layer's experts.
func (l *layer) experts() []kernels.Weight {
	if !l.sparse() {
		return nil
	}
	return []kernels.Weight{l.gate, l.up, l.down}
}

// products returns the weights of a layer's products.
func (l *layer) products() (qkv, output, gateUp, down []kernels.Weight) {
	if qkv = []kernels.Weight{l.q, l.k, l.v}; l.k.Rows == 0 { // it uses the keys and values of another layer
		qkv = qkv[:1]
	}
	return qkv, []kernels.Weight{l.output}, []kernels.Weight{l.gate, l.up}, []kernels.Weight{l.down}
}

// Weights returns a buffer that only this model has, to identify its weights.
func (m *Model) Weights() device.Buffer { return m.head.Data }
