package model

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"reel/generator/internal/weights"
)

// ErrTensor marks a checkpoint whose tensors do not fit its config.
var ErrTensor = errors.New("model: tensor does not fit the config")

// Tensors gives the loader a checkpoint's tensors by their published names.
type Tensors interface {
	Tensor(name string) (weights.Tensor, error)
	// Names are the names of all of them.
	Names() []string
}

// TensorKind is what a tensor is for.
type TensorKind string

// The kinds of tensor.
const (
	EmbeddingTensor   TensorKind = "embedding"
	AttentionTensor   TensorKind = "attention"
	FeedForwardTensor TensorKind = "feed-forward"
	NormTensor        TensorKind = "norms and biases" // vectors, which a device holds as float32
	HeadTensor        TensorKind = "head"
)

// TensorSpec is a tensor that the checkpoint of a config has.
type TensorSpec struct {
	Name  string
	Kind  TensorKind
	Shape []int // [rows][columns] of a matrix, [length] of a vector
	parts []int // of a fused matrix
}

// Elements is how many numbers the tensor holds.
func (s TensorSpec) Elements() int64 {
	n := int64(1)
	for _, d := range s.Shape {
		n *= int64(d)
	}
	return n
}

// Weights are the rows of each weight that a matrix is loaded as, and the length
// of a vector.
func (s TensorSpec) Weights() []int {
	if s.parts != nil {
		return s.parts
	}
	return s.Shape[:1]
}

// Tensors are all tensors that a checkpoint of c has, and no more.
func (c Config) Tensors() []TensorSpec {
	list := []TensorSpec{{Name: embeddingName, Kind: EmbeddingTensor, Shape: []int{c.Vocab, c.Hidden}}}
	for i := range c.Layers {
		list = append(list, c.layerTensors(layerPrefix(i))...)
	}
	list = append(list, TensorSpec{Name: normName, Kind: NormTensor, Shape: []int{c.Hidden}})
	if !c.TiedHead {
		list = append(list, TensorSpec{Name: headName, Kind: HeadTensor, Shape: []int{c.Vocab, c.Hidden}})
	}
	return list
}

// Names of tensors outside of the layers.
const (
	embeddingName = "model.embed_tokens.weight"
	normName      = "model.norm.weight"
	headName      = "lm_head.weight"
)

func layerPrefix(i int) string { return fmt.Sprintf("model.layers.%d.", i) }

// layerTensors are the tensors of the layer whose names begin with prefix.
func (c Config) layerTensors(prefix string) (list []TensorSpec) {
	add := func(kind TensorKind, name string, shape ...int) {
		list = append(list, TensorSpec{Name: prefix + name, Kind: kind, Shape: shape})
	}
	fused := func(kind TensorKind, name string, parts ...int) {
		rows := 0
		for _, n := range parts {
			rows += n
		}
		list = append(list, TensorSpec{prefix + name, kind, []int{rows, c.Hidden}, parts})
	}
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	add(NormTensor, "input_layernorm.weight", c.Hidden)
	if c.Fused {
		fused(AttentionTensor, "self_attn.qkv_proj.weight", q, kv, kv)
	} else {
		add(AttentionTensor, "self_attn.q_proj.weight", q, c.Hidden)
		add(AttentionTensor, "self_attn.k_proj.weight", kv, c.Hidden)
		add(AttentionTensor, "self_attn.v_proj.weight", kv, c.Hidden)
	}
	if c.Bias {
		add(NormTensor, "self_attn.q_proj.bias", q)
		add(NormTensor, "self_attn.k_proj.bias", kv)
		add(NormTensor, "self_attn.v_proj.bias", kv)
	}
	if c.HeadNorms {
		add(NormTensor, "self_attn.q_norm.weight", c.HeadDim)
		add(NormTensor, "self_attn.k_norm.weight", c.HeadDim)
	}
	add(AttentionTensor, "self_attn.o_proj.weight", c.Hidden, q)
	add(NormTensor, "post_attention_layernorm.weight", c.Hidden)
	if c.Fused {
		fused(FeedForwardTensor, "mlp.gate_up_proj.weight", c.Inner, c.Inner)
	} else {
		add(FeedForwardTensor, "mlp.gate_proj.weight", c.Inner, c.Hidden)
		add(FeedForwardTensor, "mlp.up_proj.weight", c.Inner, c.Hidden)
	}
	add(FeedForwardTensor, "mlp.down_proj.weight", c.Hidden, c.Inner)
	return list
}

// Parameters is how many numbers the model learned.
func (c Config) Parameters() (n int64) {
	for _, s := range c.Tensors() {
		n += s.Elements()
	}
	return n
}

// CheckTensors compares a checkpoint's headers with c, before anything is
// loaded: every tensor that c asks for is there in its shape, all matrices have
// one element type, and nothing is there that c has no use for. Errors: weights.ErrMissing, ErrTensor.
func (c Config) CheckTensors(tensors Tensors) error {
	return weights.Guard(func() error { return c.checkTensors(tensors) }) // a tied head is compared with the embedding
}

func (c Config) checkTensors(tensors Tensors) error {
	wanted := map[string]bool{}
	var first weights.Tensor // matrix
	for _, s := range c.Tensors() {
		wanted[s.Name] = true
		t, err := tensors.Tensor(s.Name)
		switch {
		case err != nil:
			return err
		case !slices.Equal(t.Shape, s.Shape):
			return fmt.Errorf("%w: %s: %s is %v, the config asks for %v", ErrTensor, t.File, s.Name, t.Shape, s.Shape)
		case len(s.Shape) < 2:
		case first.DType == 0:
			first = t
		case t.DType != first.DType:
			return fmt.Errorf("%w: %s: %s is %v and %s is %v: all matrices must have one type", ErrTensor, t.File, s.Name, t.DType, first.Name, first.DType)
		}
	}
	for _, name := range tensors.Names() {
		if !wanted[name] && !c.redundant(tensors, name) {
			t, _ := tensors.Tensor(name)
			return fmt.Errorf("%w: %s: %.80q is there and the config (%s, %d layers) has no use for it", ErrTensor, t.File, name, c.Name, c.Layers)
		}
	}
	return nil
}

// redundant tells whether a tensor says once more what the config says: the
// frequencies of RoPE, which old checkpoints hold, or a tied head.
func (c Config) redundant(tensors Tensors, name string) bool {
	t, err := tensors.Tensor(name)
	if err != nil {
		return false
	}
	if strings.HasSuffix(name, ".self_attn.rotary_emb.inv_freq") {
		return slices.Equal(t.Shape, []int{c.HeadDim / 2}) && c.RoPE == RoPEScaling{}
	}
	embedding, err := tensors.Tensor(embeddingName)
	return name == headName && c.TiedHead && err == nil && t.DType == embedding.DType && slices.Equal(t.Shape, embedding.Shape) &&
		bytes.Equal(t.Data, embedding.Data)
}
