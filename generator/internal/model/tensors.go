package model

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
)

// ErrTensor means that the tensors of a checkpoint do not fit its config.
var ErrTensor = errors.New("model: tensor does not fit the config")

// Tensors is a checkpoint, with tensors under their published names.
type Tensors interface {
	Tensor(name string) (weights.Tensor, error)
	Names() []string // of all tensors
}

// TensorKind is the purpose of a tensor.
type TensorKind string

// The kinds of tensor.
const (
	EmbeddingTensor   TensorKind = "embedding"
	AttentionTensor   TensorKind = "attention"
	FeedForwardTensor TensorKind = "feed-forward"
	NormTensor        TensorKind = "norms and biases" // vectors, which a device holds as float32
	HeadTensor        TensorKind = "head"
	RouterTensor      TensorKind = "routers" // matrices, which a device holds as float32
	ExpertTensor      TensorKind = "experts"
)

// TensorSpec describes a tensor that the checkpoint of a config must hold.
type TensorSpec struct {
	Name  string
	Llama string // the name that a checkpoint of Llama would have for it, by which GGUF names it
	Kind  TensorKind
	Shape []int // [rows][columns] of a matrix, [length] of a vector
	parts []int // rows of each weight in a fused matrix; else nil
	layer int   // of a layer's tensor
	// Unpacked: a device holds the values of a quantised matrix as floats.
	Unpacked bool
}

// Elements returns the number of elements.
func (s TensorSpec) Elements() int64 {
	n := int64(1)
	for _, d := range s.Shape {
		n *= int64(d)
	}
	return n
}

// Matrix reports whether a product reads the tensor in its own format. A device holds others as float32.
func (s TensorSpec) Matrix() bool { return len(s.Shape) > 1 && s.Kind != RouterTensor }

// Weights returns the number of rows of each weight that a matrix is loaded as. Of a
// vector it returns the length.
func (s TensorSpec) Weights() []int {
	if s.parts != nil {
		return s.parts
	}
	return s.Shape[:1]
}

// Tensors lists the tensors that a checkpoint of c must hold.
func (c Config) Tensors() []TensorSpec {
	if c.Eagle != nil {
		return c.eagleTensors()
	}
	list := []TensorSpec{{Name: embeddingName, Kind: EmbeddingTensor, Shape: []int{c.Vocab, c.Hidden}}}
	list = append(list, c.perLayerTensors()...)
	for i := range c.Layers {
		list = append(list, c.layerTensors(i)...)
	}
	list = append(list, TensorSpec{Name: normName, Kind: NormTensor, Shape: []int{c.Hidden}})
	if !c.TiedHead {
		list = append(list, TensorSpec{Name: headName, Kind: HeadTensor, Shape: []int{c.Vocab, c.Hidden}})
	}
	for i := range list {
		if list[i].Llama == "" {
			list[i].Llama = list[i].Name
		}
	}
	return list
}

// Names of the tensors outside the layers.
const (
	embeddingName = "model.embed_tokens.weight"
	normName      = "model.norm.weight"
	headName      = "lm_head.weight"
)

// Names of a layer's tensors, after the layer's prefix.
const (
	inputNorm         = "input_layernorm.weight"
	qkvProj           = "self_attn.qkv_proj.weight"
	qProj             = "self_attn.q_proj.weight"
	kProj             = "self_attn.k_proj.weight"
	vProj             = "self_attn.v_proj.weight"
	qBias             = "self_attn.q_proj.bias"
	kBias             = "self_attn.k_proj.bias"
	vBias             = "self_attn.v_proj.bias"
	qNorm             = "self_attn.q_norm.weight"
	kNorm             = "self_attn.k_norm.weight"
	oProj             = "self_attn.o_proj.weight"
	oBias             = "self_attn.o_proj.bias"
	sinks             = "self_attn.sinks"
	postAttentionNorm = "post_attention_layernorm.weight"
	gateUpProj        = "mlp.gate_up_proj.weight"
	gateProj          = "mlp.gate_proj.weight"
	upProj            = "mlp.up_proj.weight"
	downProj          = "mlp.down_proj.weight"

	// Llama has no norms after attention and feed-forward; these are GLM-4's names.
	afterAttentionNorm   = "post_self_attn_layernorm.weight"
	afterFeedForwardNorm = "post_mlp_layernorm.weight"
)

// layerPrefix is the prefix of the names of the tensors of layer i.
func layerPrefix(i int) string { return fmt.Sprintf("model.layers.%d.", i) }

// layerName returns the published name of a layer's tensor, which has a name in Llama's checkpoints. prefix is the
// layer's.
func (c Config) layerName(prefix, llama string) string {
	if name, ok := c.published[llama]; ok {
		return prefix + name
	}
	return prefix + llama
}

// specs is a list of the tensors of one layer.
type specs struct {
	c      Config
	prefix string // of their names
	layer  int
	list   []TensorSpec
}

// add adds a tensor.
func (s *specs) add(kind TensorKind, name string, shape ...int) {
	s.list = append(s.list, TensorSpec{Name: s.c.layerName(s.prefix, name), Llama: s.prefix + name, Kind: kind,
		Shape: shape, layer: s.layer})
}

// fused adds a matrix of several weights of that many rows.
func (s *specs) fused(kind TensorKind, name string, parts ...int) {
	rows := 0
	for _, n := range parts {
		rows += n
	}
	s.list = append(s.list, TensorSpec{Name: s.c.layerName(s.prefix, name), Llama: s.prefix + name, Kind: kind,
		Shape: []int{rows, s.c.Hidden}, parts: parts, layer: s.layer})
}

// layerTensors lists the tensors of layer i. Their names begin with its prefix.
func (c Config) layerTensors(i int) []TensorSpec {
	c = c.At(i)
	s := specs{c: c, prefix: layerPrefix(i), layer: i}
	if !c.NoNormsBefore {
		s.add(NormTensor, inputNorm, c.Hidden)
		s.add(NormTensor, postAttentionNorm, c.Hidden)
	}
	if c.NormsAfter {
		s.add(NormTensor, afterAttentionNorm, c.Hidden)
		s.add(NormTensor, afterFeedForwardNorm, c.Hidden)
	}
	if c.Latent != nil {
		s.latent()
	} else {
		s.heads(i)
	}
	s.add(AttentionTensor, oProj, c.Hidden, c.attendedWidth())
	if c.OutputBias {
		s.add(NormTensor, oBias, c.Hidden)
	}
	if c.Sinks {
		s.add(NormTensor, sinks, c.Heads)
	}
	if c.LayerScales {
		s.add(NormTensor, layerScalar, 1)
	}
	s.perLayer()
	if c.sparse(i) {
		s.experts()
		return s.list
	}
	if c.FusedGateUp {
		s.fused(FeedForwardTensor, gateUpProj, c.Inner, c.Inner)
	} else {
		s.add(FeedForwardTensor, gateProj, c.Inner, c.Hidden)
		s.add(FeedForwardTensor, upProj, c.Inner, c.Hidden)
	}
	s.add(FeedForwardTensor, downProj, c.Hidden, c.Inner)
	return s.list
}

// heads adds the tensors of an attention with keys and values of heads, up to its output projection.
func (s *specs) heads(layer int) {
	c := s.c
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	switch {
	case c.FusedQKV:
		s.fused(AttentionTensor, qkvProj, q, kv, kv)
	case c.sharesKV(layer):
		s.add(AttentionTensor, qProj, q, c.Hidden)
		s.add(NormTensor, qNorm, c.HeadDim)
		return
	default:
		s.add(AttentionTensor, qProj, q, c.Hidden)
		s.add(AttentionTensor, kProj, kv, c.Hidden)
		if !c.valuesAreKeys(layer) {
			s.add(AttentionTensor, vProj, kv, c.Hidden)
		}
	}
	if c.Bias {
		s.add(NormTensor, qBias, q)
		s.add(NormTensor, kBias, kv)
		s.add(NormTensor, vBias, kv)
	}
	if c.HeadNorms {
		s.add(NormTensor, qNorm, c.HeadDim)
		s.add(NormTensor, kNorm, c.HeadDim)
	}
	if c.WidthNorms {
		s.add(NormTensor, qNorm, q)
		s.add(NormTensor, kNorm, kv)
	}
}

// Parameters returns the number of parameters of the model.
func (c Config) Parameters() (n int64) {
	for _, s := range c.Tensors() {
		n += s.Elements()
	}
	return n
}

// CheckTensors checks the headers of a checkpoint against c before anything is loaded:
// every tensor of c is there in its shape and of a type that ops take, and there are no others, except redundant ones.
// Matrices may differ in type; which mixtures a GPU multiplies is for CheckOps. Errors: weights.ErrMissing, ErrTensor,
// and weights.ErrChanged, since it may read a tied head and the embedding.
func (c Config) CheckTensors(tensors Tensors) error {
	return weights.Guard(func() error { return c.checkTensors(tensors) })
}

// Quantised reports whether a matrix of c is quantised.
func (c Config) Quantised(tensors Tensors) bool {
	return slices.ContainsFunc(c.Tensors(), func(s TensorSpec) bool {
		t, err := tensors.Tensor(s.Name)
		return err == nil && s.Matrix() && t.DType.Quantised()
	})
}

// Formats returns the format of each matrix of c, by its name.
func (c Config) Formats(tensors Tensors) map[string]kernels.DType {
	formats := map[string]kernels.DType{}
	for _, s := range c.Tensors() {
		if t, err := tensors.Tensor(s.Name); err == nil && s.Matrix() {
			formats[s.Name] = dtypes[t.DType]
		}
	}
	return formats
}

// CheckOps checks that a GPU has kernels for the formats of weights that one op multiplies. It names them if not.
func (c Config) CheckOps(formats map[string]kernels.DType) error {
	var ops [][]string
	if !c.FusedQKV && c.Latent == nil {
		ops = append(ops, []string{qProj, kProj, vProj})
	}
	if !c.FusedGateUp {
		ops = append(ops, []string{gateProj, upProj}, []string{expertsGate, expertsUp}, []string{sharedGate, sharedUp})
	}
	for i := range c.Layers {
		for _, op := range ops {
			if _, ok := formats[layerPrefix(i)+op[0]]; !ok {
				continue // a layer has one of the feed-forwards
			}
			var all []kernels.DType
			for _, name := range op { // a layer may have no keys and values of its own, or values that are keys
				if f, ok := formats[layerPrefix(i)+name]; ok {
					all = append(all, f)
				}
			}
			if err := kernels.CheckTogether(op[0] != qProj, all...); err != nil {
				return fmt.Errorf("%s%s: %w", layerPrefix(i), strings.Join(op, ", "), err)
			}
		}
	}
	return nil
}

// Reordered returns the bytes of the rows of q and k that [Load] copies to put them in order.
func (c Config) Reordered(tensors Tensors) (bytes int64) {
	if c.Latent == nil && c.headOrder() == nil {
		return 0
	}
	for _, s := range c.Tensors() {
		t, err := tensors.Tensor(s.Name)
		switch {
		case err != nil:
		case s.Unpacked && t.DType.Quantised():
			bytes += 4 * s.Elements()
		case t.Conversion != nil: // what is converted is copied anyway
		case s.Unpacked && !c.Latent.Apart || s.ordered(c):
			bytes += int64(len(t.Data))
		case strings.HasSuffix(s.Name, qkvProj):
			bytes += int64((c.Heads + c.KVHeads) * c.HeadDim * t.DType.Bytes(t.Shape[1]))
		}
	}
	return bytes
}

// Stacked returns the bytes of the experts' matrices that one rank reads in place and [Load] copies for several: their
// rows of a stack do not follow one another.
func (c Config) Stacked(tensors Tensors) (bytes int64) {
	for _, s := range c.Tensors() {
		if t, err := tensors.Tensor(s.Name); err == nil && s.Kind == ExpertTensor && s.Matrix() && t.Conversion == nil {
			bytes += int64(len(t.Data))
		}
	}
	return bytes
}

// ordered reports whether all rows of a matrix that is not fused come in the order in which a device rotates them.
func (s TensorSpec) ordered(c Config) bool {
	names := []string{qProj, kProj}
	if c.Latent != nil {
		if names = []string{qProj, queryUpProj, latentProj}; !c.Interleaved {
			names = nil
		}
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(s.Name, name) })
}

func (c Config) checkTensors(tensors Tensors) error {
	wanted := map[string]bool{}
	for _, s := range c.Tensors() {
		wanted[s.Name] = true
		t, err := tensors.Tensor(s.Name)
		switch {
		case err != nil:
			return err
		case !slices.Equal(t.Shape, s.Shape):
			return fmt.Errorf("%w: %s: %s has the shape %v, the config asks for %v",
				ErrTensor, t.File, s.Name, t.Shape, s.Shape)
		case s.Name == tokensName && (t.DType == weights.I64 || t.DType == weights.I32):
		case !s.Matrix() && (t.DType.Quantised() || dtypes[t.DType] == 0):
			return fmt.Errorf("%w: %s: %s is %v, but a vector or a router must be float", ErrTensor, t.File, s.Name, t.DType)
		case s.Unpacked && t.Conversion != nil && t.Conversion.Order != nil:
			return fmt.Errorf("%w: %s: %s has its columns in another order (desc_act)", ErrTensor, t.File, s.Name)
		case dtypes[t.DType] == 0:
			return fmt.Errorf("%w: %s: %s is %v, and config.json has no quantization_config that says what that means",
				ErrTensor, t.File, s.Name, t.DType)
		}
	}
	if c.Eagle != nil {
		wanted[knownName] = true
		if err := c.checkTokens(tensors); err != nil {
			return err
		}
	}
	for _, name := range tensors.Names() {
		if !wanted[name] && !c.redundant(tensors, name) {
			t, _ := tensors.Tensor(name)
			return fmt.Errorf("%w: %s: the config (%s, %d layers) has no tensor %.80q%s",
				ErrTensor, t.File, c.Name, c.Layers, name, c.without(name))
		}
	}
	return nil
}

// redundant reports whether a tensor repeats a fact of the config: the frequencies of
// RoPE, which old checkpoints hold, keys and values of layers that use others, layers that guess further tokens, a tied
// head with the same data as the embedding, or any head of a model for embeddings.
func (c Config) redundant(tensors Tensors, name string) bool {
	t, err := tensors.Tensor(name)
	if err != nil {
		return false
	}
	if strings.HasSuffix(name, ".self_attn.rotary_emb.inv_freq") {
		return slices.Equal(t.Shape, []int{c.rotated() / 2}) && c.RoPE == RoPEScaling{}
	}
	if c.unusedKV(name) {
		return true
	}
	if n, _, ok := LayerOf(name); ok && c.Further > 0 {
		return n >= c.Layers && n < c.Layers+c.Further
	}
	if c.Embedding != nil && (name == headName || name == ggufOutput) {
		return true
	}
	embedding, err := tensors.Tensor(embeddingName)
	return name == headName && c.TiedHead && err == nil && t.DType == embedding.DType &&
		slices.Equal(t.Shape, embedding.Shape) && bytes.Equal(t.Data, embedding.Data)
}
