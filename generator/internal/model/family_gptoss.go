package model

import (
	"fmt"

	"reel.internal/reel/kernels"
)

// GPT-OSS has windows in every other layer, a sink in each query head, biases of all products, experts whose gate is
// bounded, and published checkpoints with experts of MXFP4.
// (OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025; transformers, modeling_gpt_oss.py.)
var gptOss = family{architecture: "GptOssForCausalLM", config: Config{Sinks: true}, mayBias: true, theta: 150000,
	windows:  allButEach(2),
	defaults: configFile{Window: new(128), HeadDim: 64, KVHeads: new(8), AttentionBias: true},
	rope:     &ropes{Type: string(YarnRoPE), Factor: 32, Original: 4096, BetaFast: 32, BetaSlow: 1, Truncate: new(false)},
	own: func() ownFields {
		return &gptOssFields{expertFields: expertFields{Used: 4}, Limit: gptOssLimit, Alpha: gptOssAlpha}
	},
	inert: []string{"initial_context_length", "experts_per_token"},
	gguf:  ggufGptOss,
}

// gptOssLimit bounds gates and ups, and gptOssAlpha multiplies gates inside the sigmoid. transformers had them in its code
// alone, and has come to write them.
const gptOssLimit, gptOssAlpha = 7, 1.702

// gptOssFields are GPT-OSS's.
type gptOssFields struct {
	expertFields
	Limit float64 `json:"swiglu_limit"`
	Alpha float64 `json:"swiglu_alpha"`
}

func (g *gptOssFields) set(f *configFile, c *Config) (err error) {
	if g.Limit != gptOssLimit {
		return fmt.Errorf("%w: config.json: swiglu_limit %v", ErrUnsupported, g.Limit)
	}
	if g.Alpha != gptOssAlpha {
		return fmt.Errorf("%w: config.json: swiglu_alpha %v", ErrUnsupported, g.Alpha)
	}
	c.OutputBias = f.AttentionBias
	c.Experts, err = g.experts(128, f.Inner)
	if err == nil {
		c.Experts.gptOss()
	}
	return err
}

// gptOss sets how the experts differ from Mixtral's.
func (e *Experts) gptOss() {
	e.Scoring, e.RouterBias, e.Bias, e.Transposed, e.Limit = kernels.SoftmaxOfChosen, true, true, true, gptOssLimit
}
