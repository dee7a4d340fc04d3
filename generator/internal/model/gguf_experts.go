package model

import (
	"fmt"
)

// experts sets the mixture of experts, if the file has one. Layers without a router have one feed-forward. Of a file of
// Mixtral the architecture is llama. (llama.cpp: src/llama-model.cpp, build_moe_ffn.)
func (r *ggufReader) experts(c *Config) {
	if n, _ := r.metadata.Uint(r.arch + "." + keyExperts); n == 0 || r.err != nil {
		return
	}
	e := &Experts{Count: r.number(keyExperts, maxDimension, -1), Used: r.number(keyUsed, maxDimension, -1),
		Inner: c.Inner, Normalise: true}
	c.Experts = e
	switch r.arch {
	case "llama":
		c.Name = "mixtral"
	case "qwen3moe":
		e.Inner = r.number(keyExpertDim, maxDimension, max(1, c.Inner/max(1, e.Used)))
	case "olmoe":
		e.Normalise = false
		e.Inner = r.number(keyExpertDim, maxDimension, c.Inner)
	case "deepseek2":
		r.deepseekExperts(c)
	case "gemma4":
		r.expertsBeside(c)
		return
	case "gpt-oss":
		e.Normalise = false
		e.Inner = r.number(keyExpertDim, maxDimension, c.Inner)
		e.gptOss()
	default:
		r.refuse("a mixture of %d experts in a file of %s", e.Count, r.arch)
	}
	dense := false
	e.Choice = e.Choice || r.arch == "deepseek2" && r.hasTensor(fmt.Sprintf("blk.%d.exp_probs_b.bias", c.Layers-1))
	for i := range c.Layers {
		e.Dense = append(e.Dense, !r.hasTensor(fmt.Sprintf("blk.%d.%s", i, ggufRouter)))
		dense = dense || e.Dense[i]
	}
	if !dense {
		e.Dense = nil
	}
}

// ggufGptOss sets what GPT-OSS has beside its experts. The file does not say that yarn's bounds are not rounded.
func ggufGptOss(r *ggufReader, c *Config) {
	c.OutputBias, c.RoPE.Whole = r.hasTensor("blk.0.attn_output.bias"), false
	r.endTexts(c, gptOssEnds)
}

// gptOssEnds end an answer: its last message, and a call. generation_config.json has them, and GGUF only the first one.
var gptOssEnds = []string{"<|return|>", "<|call|>"}
