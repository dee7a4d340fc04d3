package model

import (
	"fmt"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// Granite 3 multiplies embeddings, scores and the results of layers, and divides logits. The models of Granite 4
// without Mamba layers and experts are the same under other names.
// (transformers, modeling_granite.py, modeling_granitemoehybrid.py.)
var (
	granite = family{architecture: "GraniteForCausalLM", own: func() ownFields { return newGraniteFields() },
		gguf: ggufGranite, ggufKeys: append([]string{keyEmbedding, keyResidual,
			keyLogits, keyAttention}, graniteInert...)}

	graniteDense = family{architecture: "GraniteMoeHybridForCausalLM",
		config: Config{FusedGateUp: true, published: map[string]string{
			gateUpProj: "shared_mlp.input_linear.weight", downProj: "shared_mlp.output_linear.weight"}},
		own: func() ownFields {
			return &graniteDenseFields{graniteFields: *newGraniteFields(), Experts: 8, Inner: 1024}
		},
		noRoPE: func(f *configFile, _ int) bool { return f.own.(*graniteDenseFields).Positions != "rope" },
		inert:  inertMamba}
)

// graniteFields are Granite's multipliers.
type graniteFields struct {
	Embedding float64 `json:"embedding_multiplier"`
	Logits    float64 `json:"logits_scaling"` // divides
	Residual  float64 `json:"residual_multiplier"`
	Attention float64 `json:"attention_multiplier"` // takes the place of 1/√HeadDim
}

func newGraniteFields() *graniteFields {
	return &graniteFields{Embedding: 1, Logits: 1, Residual: 1, Attention: 1}
}

func (g *graniteFields) fill(*configFile) {}

func (g *graniteFields) set(_ *configFile, c *Config) error {
	for _, v := range []struct {
		field string
		value float64
	}{{"embedding_multiplier", g.Embedding}, {"logits_scaling", g.Logits}, {"residual_multiplier", g.Residual},
		{"attention_multiplier", g.Attention}} {
		if float32(v.value) == 0 { // a Config's 0 is for a field that is absent, and the defaults here are 1
			least, most := multiplierBounds(v.field)
			return outside(v.field, v.value, least, most)
		}
	}
	c.EmbeddingScale, c.LogitsDivisor = float32(g.Embedding), float32(g.Logits)
	c.ResidualScale = float32(g.Residual)
	c.setAttentionScale(g.Attention)
	return c.checkMultipliers()
}

// inertMamba lists the fields of Mamba layers and experts, for models without any.
var inertMamba = []string{"num_experts_per_tok", "output_router_logits", "router_aux_loss_coef", "mamba_n_heads",
	"mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand", "mamba_chunk_size",
	"mamba_conv_bias", "mamba_proj_bias", "time_step_limit", "normalization_function", "init_method"}

// graniteDenseFields are those of models that may have Mamba layers and experts.
type graniteDenseFields struct {
	graniteFields
	Experts   int    `json:"num_local_experts"`
	Inner     int    `json:"shared_intermediate_size"`
	Positions string `json:"position_embedding_type"` // "rope", or another: there is no RoPE
}

// fill takes the width of the only feed-forward. Layers are Mamba's unless layer_types says otherwise.
func (g *graniteDenseFields) fill(f *configFile) {
	f.Inner = g.Inner
	if f.LayerKinds == nil && f.Layers <= maxLayers {
		f.LayerKinds = slices.Repeat([]string{"mamba"}, max(0, f.Layers))
	}
	for i, kind := range f.LayerKinds {
		if kind == "attention" {
			f.LayerKinds[i] = fullLayer
		}
	}
}

func (g *graniteDenseFields) set(f *configFile, c *Config) error {
	if g.Experts != 0 {
		return fmt.Errorf("%w: config.json: num_local_experts %d", ErrUnsupported, g.Experts)
	}
	return g.graniteFields.set(f, c)
}

// Plain returns a model of Granite 4 as one of Granite 3, the form that GGUF has: gate and up projections are separate
// matrices. Other models come back unchanged.
func Plain(c Config, from Tensors) (Config, Tensors) {
	if c.Name != "granitemoehybrid" {
		return c, from
	}
	s := splitGates{from, c.published, c.Inner}
	c.Name, c.FusedGateUp, c.published = "granite", false, nil
	if !slices.Contains(c.NoRoPE, true) {
		c.NoRoPE = nil
	}
	return c, s
}

// splitGates are Granite 4's tensors by the names of Granite 3.
type splitGates struct {
	Tensors
	published map[string]string
	inner     int // rows of gates, and of up projections after them
}

// Names returns the names of all tensors.
func (s splitGates) Names() (all []string) {
	for _, name := range s.Tensors.Names() {
		if layer, ok := strings.CutSuffix(name, s.published[gateUpProj]); ok {
			all = append(all, layer+gateProj, layer+upProj)
		} else if layer, ok := strings.CutSuffix(name, s.published[downProj]); ok {
			all = append(all, layer+downProj)
		} else {
			all = append(all, name)
		}
	}
	return all
}

// Tensor returns a tensor by Granite 3's name; a gate or an up projection is half of a fused one. One of another shape comes
// whole, and CheckTensors refuses it. The error is ErrUnsupported for quantised ones.
func (s splitGates) Tensor(name string) (weights.Tensor, error) {
	for i, own := range []string{gateProj, upProj} {
		if layer, ok := strings.CutSuffix(name, own); ok {
			t, err := s.Tensors.Tensor(layer + s.published[gateUpProj])
			if err == nil && t.Conversion != nil {
				return t, fmt.Errorf("%w: %s is quantised: convert the checkpoint in bfloat16", ErrUnsupported, t.Name)
			}
			if err == nil && len(t.Shape) == 2 && t.Shape[0] == 2*s.inner {
				n := len(t.Data) / 2
				t.Name, t.Shape, t.Data = name, []int{s.inner, t.Shape[1]}, t.Data[i*n:][:n]
			}
			return t, err
		}
	}
	if layer, ok := strings.CutSuffix(name, downProj); ok {
		name = layer + s.published[downProj]
	}
	return s.Tensors.Tensor(name)
}

// Keys of the multipliers in GGUF.
const (
	keyEmbedding = "embedding_scale"
	keyResidual  = "residual_scale"
	keyLogits    = "logit_scale" // divides
	keyAttention = "attention.scale"
)

// graniteInert are keys of Mamba layers and shared experts, which files of Granite 4's dense models have though they have
// neither. (llama.cpp: conversion/granite.py, GraniteHybridModel.)
var graniteInert = []string{"expert_shared_feed_forward_length", "ssm.conv_kernel", "ssm.state_size", "ssm.group_count",
	"ssm.inner_size", "ssm.time_step_rank"}

// ggufGranite reads the multipliers; without one there is nothing to multiply by. rope.scaling.finetuned says whether
// there is RoPE. (llama.cpp: src/models/granite.cpp.)
func ggufGranite(r *ggufReader, c *Config) {
	read := func(key string) float32 {
		if n, ok := r.metadata.Uint(r.arch + "." + key); !r.has(r.arch+"."+key) || ok && n == 0 {
			return 0
		}
		return float32(r.float(key, minScale, maxScale, 1))
	}
	c.EmbeddingScale, c.ResidualScale = read(keyEmbedding), read(keyResidual)
	c.LogitsDivisor, c.AttentionScale = read(keyLogits), read(keyAttention)
	if rotates, ok := r.metadata.Bool(r.arch + "." + keyFinetuned); ok && !rotates {
		c.NoRoPE = slices.Repeat([]bool{true}, c.Layers)
	}
}
