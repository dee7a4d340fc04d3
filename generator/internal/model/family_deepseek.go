package model

import (
	"fmt"
	"math"
	"slices"

	"reel.internal/reel/kernels"
)

// DeepSeek-V2 and V3 have latent attention, first layers without experts, and shared experts beside those that a router
// chooses: of V2 by softmax, of V3 by sigmoid, with a bias for choosing. GLM-4.7-Flash is V3 with other numbers.
// (transformers, modeling_deepseek_v2.py, modeling_deepseek_v3.py, modeling_glm4_moe_lite.py.)
var (
	deepseek2 = family{architecture: "DeepseekV2ForCausalLM", inert: deepseekInert,
		defaults: configFile{Vocab: 102400, Hidden: 4096, Inner: 11008, Layers: 32, Heads: 32, Context: 2048, Eps: 1e-6},
		own: func() ownFields {
			return &deepseekFields{Experts: 64, Shared: new(2), Inner: 1407, Step: 1, Scale: 1, Score: "softmax", Method: greedy,
				latentFields: latentFields{Rank: 512, QueryRank: new(1536), Nope: 128, Rope: 64, Value: 128}}
		}}

	deepseek3 = family{architecture: "DeepseekV3ForCausalLM", inert: deepseekInert, gguf: ggufDeepseek,
		ggufKeys: deepseekKeys,
		defaults: configFile{Vocab: 129280, Hidden: 7168, Inner: 18432, Layers: 61, Heads: 128, Context: 4096, Eps: 1e-6},
		own: func() ownFields {
			return &deepseekFields{Experts: 256, Used: 8, Shared: new(1), Inner: 2048, Step: 1, Scale: 2.5, Dense: 3, Normalise: true,
				Groups: 8, GroupsUsed: 4, Score: "sigmoid", Method: noAuxiliary,
				latentFields: latentFields{Rank: 512, QueryRank: new(1536), Nope: 128, Rope: 64, Value: 128}}
		}}

	glm4MoELite = family{architecture: "Glm4MoeLiteForCausalLM", inert: deepseekInert,
		defaults: configFile{Vocab: 154880, Hidden: 2048, Inner: 10240, Layers: 47, Heads: 20, Context: 202752, Eps: 1e-5},
		own: func() ownFields {
			return &deepseekFields{Experts: 64, Used: 4, Shared: new(1), Inner: 1536, Step: 1, Scale: 1.8, Dense: 1, Normalise: true,
				Groups: 1, GroupsUsed: 1, Score: "sigmoid", Method: noAuxiliary,
				latentFields: latentFields{Rank: 512, QueryRank: new(768), Nope: 192, Rope: 64, Value: 256}}
		}}
)

// deepseekInert are fields about training and about memory.
var deepseekInert = []string{"aux_loss_alpha", "seq_aux", "ep_size", "qk_head_dim"}

// Ways of choosing experts: the greatest scores; those in the groups with the greatest scores; those in the groups whose
// best two scores have the greatest sum, all with a bias.
const (
	greedy       = "greedy"
	groupLimited = "group_limited_greedy"
	noAuxiliary  = "noaux_tc"
)

// latentFields are those of latent attention.
type latentFields struct {
	Rank        int   `json:"kv_lora_rank"`
	QueryRank   *int  `json:"q_lora_rank"`
	Nope        int   `json:"qk_nope_head_dim"`
	Rope        int   `json:"qk_rope_head_dim"`
	Value       int   `json:"v_head_dim"`
	Interleaved *bool `json:"rope_interleave"`
}

// set sets latent attention, and the scale of scores. Yarn multiplies that by the square of its own factor for all
// elements of a head, since the table of RoPE multiplies only those that it rotates.
func (l *latentFields) set(f *configFile, c *Config) {
	c.Latent = &Latent{Rank: l.Rank, Nope: l.Nope, Rope: l.Rope, Value: l.Value}
	if l.QueryRank != nil {
		c.Latent.QueryRank = *l.QueryRank
	}
	c.HeadDim, c.KVHeads = l.Nope+l.Rope, c.Heads
	c.Interleaved = l.Interleaved == nil || *l.Interleaved
	if r := f.ropes(); c.RoPE.Kind == YarnRoPE && r.ScaleAll != 0 && c.HeadDim > 0 {
		scale := yarnAttention(c.RoPE.Factor, r.ScaleAll)
		c.setAttentionScale(scale * scale / math.Sqrt(float64(c.HeadDim)))
	}
}

// deepseekFields are those of all three families.
type deepseekFields struct {
	latentFields
	Experts    int      `json:"n_routed_experts"`
	Used       int      `json:"num_experts_per_tok"`
	Shared     *int     `json:"n_shared_experts"`
	Inner      int      `json:"moe_intermediate_size"`
	Dense      int      `json:"first_k_dense_replace"`
	Step       int      `json:"moe_layer_freq"`
	Kinds      []string `json:"mlp_layer_types"`
	Normalise  bool     `json:"norm_topk_prob"`
	Scale      float64  `json:"routed_scaling_factor"`
	Score      string   `json:"scoring_func"`
	Method     string   `json:"topk_method"`
	Groups     int      `json:"n_group"`
	GroupsUsed int      `json:"topk_group"`
	Next       int      `json:"num_nextn_predict_layers"`
}

func (d *deepseekFields) fill(*configFile) {}

func (d *deepseekFields) set(f *configFile, c *Config) error {
	d.latentFields.set(f, c)
	if err := d.supported(f); err != nil {
		return err
	}
	e := &Experts{Count: d.Experts, Used: d.Used, Inner: d.Inner, Scale: float32(d.Scale), Normalise: d.Normalise}
	if d.Shared != nil {
		e.Shared = *d.Shared * d.Inner
	}
	if d.Score == "sigmoid" {
		e.Scoring = kernels.Sigmoid
	}
	if e.Choice = d.Method == noAuxiliary; d.Method != greedy && d.Groups != 1 {
		e.Groups, e.GroupsUsed, e.BestTwo = d.Groups, d.GroupsUsed, e.Choice
	}
	e.dense(f.Layers, func(layer int) bool {
		if d.Kinds != nil {
			return d.Kinds[layer] != sparseLayer
		}
		return layer < d.Dense
	})
	c.Experts, c.Further = e, d.Next
	return nil
}

// sparseLayer is the kind of a layer with experts in mlp_layer_types.
const sparseLayer = "sparse"

// supported refuses what the router does not compute.
func (d *deepseekFields) supported(f *configFile) error {
	two := f.ModelType == "deepseek_v2"
	for _, r := range []struct {
		field string
		value any
		bad   bool
	}{{"scoring_func", d.Score, two && d.Score != "softmax" || !two && d.Score != "sigmoid"},
		{"topk_method", d.Method, two && d.Method != greedy && d.Method != groupLimited || !two && d.Method != noAuxiliary},
		{"norm_topk_prob", "true in a " + f.ModelType, d.Normalise && two}, // transformers passes over it
		{"moe_layer_freq", d.Step, d.Step != 1},
		{"num_nextn_predict_layers", d.Next, d.Next < 0 || d.Next > maxLayers},
		{"mlp_layer_types", d.Kinds, d.Kinds != nil && (two || len(d.Kinds) != f.Layers ||
			slices.ContainsFunc(d.Kinds, func(kind string) bool { return kind != sparseLayer && kind != "dense" }))},
	} {
		if r.bad {
			return fmt.Errorf("%w: config.json: %s %.200v", ErrUnsupported, r.field, r.value)
		}
	}
	return nil
}
