package model

import (
	"fmt"
	"math"

	"reel.internal/reel/kernels"
)

// Keys of DeepSeek-V2, V3 and GLM-4.7-Flash in GGUF, which are one architecture.
const (
	keyLatent       = "attention.kv_lora_rank"
	keyQueryLatent  = "attention.q_lora_rank"
	keyLatentDim    = "attention.key_length_mla" // of a head before absorption, where key_length is that of a row of the cache
	keyLatentValue  = "attention.value_length_mla"
	keyDense        = "leading_dense_block_count" // tensors say it too
	keyShared       = "expert_shared_count"
	keyExpertScale  = "expert_weights_scale"
	keyExpertNorm   = "expert_weights_norm"
	keyExpertScore  = "expert_gating_func"
	keyExpertGroups = "expert_group_count"
	keyGroupsUsed   = "expert_group_used_count"
	keyFurther      = "nextn_predict_layers"
)

var deepseekKeys = []string{keyLatent, keyQueryLatent, keyLatentDim, keyLatentValue, keyDense, keyShared, keyExpertScale,
	keyExpertNorm, keyExpertScore, keyExpertGroups, keyGroupsUsed, keyFurther}

// Ways of scoring, as expert_gating_func says them.
const ggufSoftmax, ggufSigmoid = 1, 2

// scoring returns how experts are scored where the file does not say it: in GLM-4.7-Flash, which has a bias for choosing,
// by sigmoid, in DeepSeek-V2 by softmax. (llama.cpp: src/models/deepseek2.cpp, by the numbers of layers and tokens.)
func (r *ggufReader) scoring(c *Config) int {
	if r.hasTensor(fmt.Sprintf("blk.%d.exp_probs_b.bias", c.Layers-1)) {
		return ggufSigmoid
	}
	return ggufSoftmax
}

// further takes the layers that guess further tokens from those of the model. block_count has both.
func (r *ggufReader) further(c *Config) {
	if !r.has(r.arch+"."+keyFurther) || r.optional(keyFurther) == 0 {
		return
	}
	if c.Further = r.number(keyFurther, maxLayers, -1); c.Further >= c.Layers {
		r.refuse("%s.%s is %d of %d layers", r.arch, keyFurther, c.Further, c.Layers)
		return
	}
	c.Layers -= c.Further
}

// latent sets latent attention. (llama.cpp: src/models/deepseek2.cpp; convert_hf_to_gguf.py, DeepseekV2Model.)
func (r *ggufReader) latent(c *Config) {
	l := &Latent{Rank: r.number(keyLatent, maxDimension, -1), Rope: r.number(keyRotated, maxDimension, -1)}
	if r.has(r.arch + "." + keyQueryLatent) {
		l.QueryRank = r.number(keyQueryLatent, maxDimension, -1)
	}
	c.HeadDim = r.number(keyLatentDim, maxHeadDim, r.number(keyHeadDim, maxHeadDim, c.HeadDim))
	l.Value = r.number(keyLatentValue, maxHeadDim, r.number(keyValueDim, maxHeadDim, 1))
	l.Nope = c.HeadDim - l.Rope
	l.Apart = r.hasTensor("blk.0.attn_k_b.weight")
	c.Latent, c.KVHeads = l, c.Heads
	r.fail(l.check(*c))
}

// deepseekExperts sets how DeepSeek's router differs from Qwen's.
func (r *ggufReader) deepseekExperts(c *Config) {
	e := c.Experts
	e.Inner = r.number(keyExpertDim, maxDimension, -1)
	e.Shared = e.Inner * r.number(keyShared, maxExpertsShared, 1)
	e.Scale = float32(r.float(keyExpertScale, minScale, maxScale, 1))
	e.Normalise, _ = r.metadata.Bool(r.arch + "." + keyExpertNorm)
	switch score := r.number(keyExpertScore, maxDimension, r.scoring(c)); score {
	case ggufSoftmax:
		c.Name = "deepseek_v2"
	case ggufSigmoid:
		e.Scoring = kernels.Sigmoid
	default:
		r.refuse("%s.%s is %d", r.arch, keyExpertScore, score)
	}
	if groups := r.number(keyExpertGroups, maxDimension, 1); groups > 1 {
		e.Groups, e.GroupsUsed = groups, r.number(keyGroupsUsed, maxDimension, 1)
		// What a softmax's groups are chosen by, the file does not say: DeepSeek-V2's differ from V3's.
		if e.BestTwo = e.Scoring == kernels.Sigmoid; !e.BestTwo {
			r.refuse("%s.%s is %d of experts that are scored by softmax", r.arch, keyExpertGroups, e.Groups)
		}
	}
}

// maxExpertsShared bounds the number of shared experts.
const maxExpertsShared = 64

// ggufDeepseek sets the scale of scores, which the logarithm's multiplier is a part of: a tenth of mscale_all_dim. Then cos
// and sin have no factor of their own, since mscale is the same number in all published models.
func ggufDeepseek(r *ggufReader, c *Config) {
	if c.RoPE.Kind == YarnRoPE && r.yarnLog() {
		c.RoPE.Attention = 1
		scale := 1 + r.float(keyYarnLog, minScale, maxScale, 1)*math.Log(c.RoPE.Factor)
		c.setAttentionScale(scale * scale / math.Sqrt(float64(c.HeadDim)))
	}
}
