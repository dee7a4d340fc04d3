package model

import (
	"fmt"
	"slices"

	"reel.internal/reel/kernels"
)

// Families of which most layers have experts in place of a feed-forward. Qwen3-MoE is Qwen3 else, Mixtral Mistral, and
// OLMoE Llama with norms over all heads of q and k.
// (transformers, modeling_qwen3_moe.py, modeling_mixtral.py, modeling_olmoe.py.)
var (
	qwen3MoE = family{architecture: "Qwen3MoeForCausalLM", config: Config{HeadNorms: true}, windows: lateLayers,
		defaults: configFile{KVHeads: new(4), HeadDim: 128, Window: new(4096)},
		own: func() ownFields {
			return &qwenExpertFields{expertFields: expertFields{Used: 8}, Inner: 768, Step: 1}
		}}

	mixtral = family{architecture: "MixtralForCausalLM", windows: everyLayer, theta: 1e6,
		defaults: configFile{KVHeads: new(8)},
		own:      func() ownFields { return &mixtralFields{expertFields{Used: 2}} }}

	olmoe = family{architecture: "OlmoeForCausalLM", config: Config{WidthNorms: true},
		own: func() ownFields { return &olmoeFields{expertFields: expertFields{Used: 8}} }}
)

// expertFields are the fields of config.json that all of these families have.
type expertFields struct {
	Experts      int `json:"num_experts"`
	LocalExperts int `json:"num_local_experts"` // another name of the same
	Used         int `json:"num_experts_per_tok"`
}

func (e *expertFields) fill(*configFile) {}

// experts returns the experts that they describe. absent is their number where config.json has none.
func (e *expertFields) experts(absent, inner int) (*Experts, error) {
	n := absent
	if e.Experts != 0 {
		n = e.Experts
	}
	if e.LocalExperts != 0 {
		if e.Experts != 0 && e.Experts != e.LocalExperts {
			return nil, fmt.Errorf("%w: config.json: num_experts %d and num_local_experts %d", ErrUnsupported,
				e.Experts, e.LocalExperts)
		}
		n = e.LocalExperts
	}
	return &Experts{Count: n, Used: e.Used, Inner: inner, Scoring: kernels.SoftmaxOfAll}, nil
}

// qwenExpertFields are Qwen3-MoE's.
type qwenExpertFields struct {
	expertFields
	Inner     int   `json:"moe_intermediate_size"`
	Normalise bool  `json:"norm_topk_prob"`
	Step      int   `json:"decoder_sparse_step"` // each such layer has experts
	Dense     []int `json:"mlp_only_layers"`     // layers that have none
	// As Qwen3-Coder has them: nothing is shared, and the heads of q and k are normed, as in all models of the family.
	Shared int   `json:"shared_expert_intermediate_size"`
	Norms  *bool `json:"use_qk_norm"`
}

func (q *qwenExpertFields) set(f *configFile, c *Config) (err error) {
	if q.Shared != 0 {
		return fmt.Errorf("%w: config.json: shared_expert_intermediate_size %d", ErrUnsupported, q.Shared)
	}
	if q.Norms != nil && !*q.Norms {
		return fmt.Errorf("%w: config.json: use_qk_norm false", ErrUnsupported)
	}
	if c.Experts, err = q.experts(128, q.Inner); err != nil {
		return err
	}
	c.Experts.Normalise = q.Normalise
	c.Experts.dense(f.Layers, func(layer int) bool {
		return slices.Contains(q.Dense, layer) || q.Step < 1 || (layer+1)%q.Step != 0
	})
	return nil
}

// dense sets the layers without experts.
func (e *Experts) dense(layers int, is func(layer int) bool) {
	e.Dense = nil
	for i := range min(max(layers, 0), maxLayers) {
		e.Dense = append(e.Dense, is(i))
	}
	if !slices.Contains(e.Dense, true) {
		e.Dense = nil
	}
}

// mixtralFields are Mixtral's, whose weights of a row's experts have the sum 1.
type mixtralFields struct{ expertFields }

func (m *mixtralFields) set(f *configFile, c *Config) (err error) {
	if c.Experts, err = m.experts(8, f.Inner); err == nil {
		c.Experts.Normalise = true
	}
	return err
}

// olmoeFields are OLMoE's.
type olmoeFields struct {
	expertFields
	Normalise bool     `json:"norm_topk_prob"`
	Clip      *float64 `json:"clip_qkv"` // bounds q, k and v
}

func (o *olmoeFields) set(f *configFile, c *Config) (err error) {
	if o.Clip != nil {
		return fmt.Errorf("%w: config.json: clip_qkv %v", ErrUnsupported, *o.Clip)
	}
	if c.Experts, err = o.experts(64, f.Inner); err == nil {
		c.Experts.Normalise = o.Normalise
	}
	return err
}
