// Package model holds a model's shape, its weights on a device, and the forward
// pass: one readable sequence of fused ops on a stream.
package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// ErrUnsupported marks a checkpoint that asks for something this build does not
// compute. The error names it.
var ErrUnsupported = errors.New("model: not supported")

// Config is the shape of a model, from config.json.
type Config struct {
	Name    string // model_type
	Vocab   int
	Hidden  int // width of the residual stream
	Inner   int // width of the feed-forward
	Layers  int
	Heads   int // query heads
	KVHeads int
	HeadDim int
	Context int // tokens of a sequence at most

	RMSNormEps float32
	RoPETheta  float64
	TiedHead   bool    // the head is the embedding
	EOS        []int32 // tokens that end a completion
}

// configFile is config.json as Hugging Face writes it, before and after
// version 5 of transformers.
type configFile struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	Vocab         int      `json:"vocab_size"`
	Hidden        int      `json:"hidden_size"`
	Inner         int      `json:"intermediate_size"`
	Layers        int      `json:"num_hidden_layers"`
	Heads         int      `json:"num_attention_heads"`
	KVHeads       int      `json:"num_key_value_heads"`
	HeadDim       int      `json:"head_dim"`
	Context       int      `json:"max_position_embeddings"`
	Eps           float64  `json:"rms_norm_eps"`
	Theta         float64  `json:"rope_theta"`
	RoPE          *ropes   `json:"rope_parameters"`
	RoPEScaling   *ropes   `json:"rope_scaling"`
	Tied          bool     `json:"tie_word_embeddings"`
	Act           string   `json:"hidden_act"`
	AttentionBias bool     `json:"attention_bias"`
	MLPBias       bool     `json:"mlp_bias"`
	PretrainingTP int      `json:"pretraining_tp"`
	EOS           tokenIDs `json:"eos_token_id"`

	Quantization json.RawMessage `json:"quantization_config"`
}

type ropes struct {
	Theta    float64 `json:"rope_theta"`
	Type     string  `json:"rope_type"`
	TypeOld  string  `json:"type"`
	Fraction float64 `json:"partial_rotary_factor"`
}

// tokenIDs is one id, several, or null.
type tokenIDs []int32

func (t *tokenIDs) UnmarshalJSON(b []byte) error {
	var one int32
	if json.Unmarshal(b, &one) == nil {
		if string(b) != "null" {
			*t = tokenIDs{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]int32)(t))
}

// ParseConfig reads config.json and, where it is not nil, generation_config.json,
// whose end-of-sequence tokens come before those of config.json.
func ParseConfig(config, generation []byte) (Config, error) {
	f := configFile{PretrainingTP: 1, Act: "silu"}
	if err := json.Unmarshal(config, &f); err != nil {
		return Config{}, fmt.Errorf("model: config.json: %w", err)
	}
	if err := f.supported(); err != nil {
		return Config{}, err
	}
	c := f.config()
	if generation != nil {
		var g struct {
			EOS tokenIDs `json:"eos_token_id"`
		}
		if err := json.Unmarshal(generation, &g); err != nil {
			return Config{}, fmt.Errorf("model: generation_config.json: %w", err)
		}
		if len(g.EOS) > 0 {
			c.EOS = g.EOS
		}
	}
	return c, c.check()
}

// supported refuses by name what the forward pass does not compute.
func (f *configFile) supported() error {
	for _, r := range []struct {
		field string
		value any
		bad   bool
	}{
		{"model_type", f.ModelType, f.ModelType != "llama"},
		{"hidden_act", f.Act, f.Act != "silu"},
		{"attention_bias", f.AttentionBias, f.AttentionBias},
		{"mlp_bias", f.MLPBias, f.MLPBias},
		{"pretraining_tp", f.PretrainingTP, f.PretrainingTP != 1},
		{"quantization_config", string(f.Quantization), len(f.Quantization) > 0 && string(f.Quantization) != "null"},
		{"rope_parameters", f.RoPE, f.RoPE.unsupported()},
		{"rope_scaling", f.RoPEScaling, f.RoPEScaling.unsupported()},
	} {
		if r.bad {
			return fmt.Errorf("%w: config.json: %s %v", ErrUnsupported, r.field, r.value)
		}
	}
	return nil
}

func (r *ropes) unsupported() bool {
	if r == nil {
		return false
	}
	plain := func(t string) bool { return t == "" || t == "default" }
	return !plain(r.Type) || !plain(r.TypeOld) || (r.Fraction != 0 && r.Fraction != 1)
}

// String shows what a refusal names.
func (r *ropes) String() string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("type %q%q, partial_rotary_factor %g", r.Type, r.TypeOld, r.Fraction)
}

func (f *configFile) config() Config {
	c := Config{Name: f.ModelType, Vocab: f.Vocab, Hidden: f.Hidden, Inner: f.Inner, Layers: f.Layers,
		Heads: f.Heads, KVHeads: f.KVHeads, HeadDim: f.HeadDim, Context: f.Context,
		RMSNormEps: float32(f.Eps), RoPETheta: f.Theta, TiedHead: f.Tied, EOS: f.EOS}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	if c.RoPETheta == 0 && f.RoPE != nil {
		c.RoPETheta = f.RoPE.Theta
	}
	if c.RoPETheta == 0 {
		c.RoPETheta = 10000
	}
	return c
}

// maxDimension bounds every count of a config: products of three fit an int64.
const maxDimension = 1 << 20

func (c Config) check() error {
	for _, d := range []struct {
		field string
		n     int
	}{{"vocab_size", c.Vocab}, {"hidden_size", c.Hidden}, {"intermediate_size", c.Inner}, {"num_hidden_layers", c.Layers},
		{"num_attention_heads", c.Heads}, {"num_key_value_heads", c.KVHeads}, {"head_dim", c.HeadDim}, {"max_position_embeddings", c.Context}} {
		if d.n < 1 || d.n > maxDimension {
			return fmt.Errorf("model: config.json: %s is %d, wants 1 to %d", d.field, d.n, maxDimension)
		}
	}
	if c.Heads%c.KVHeads != 0 || c.HeadDim%2 != 0 {
		return fmt.Errorf("model: config.json: %d heads of %d elements over %d KV heads do not divide", c.Heads, c.HeadDim, c.KVHeads)
	}
	if !(c.RMSNormEps > 0) || !(c.RoPETheta > 0) {
		return fmt.Errorf("model: config.json: rms_norm_eps %g and rope_theta %g must be above 0", c.RMSNormEps, c.RoPETheta)
	}
	if slices.ContainsFunc(c.EOS, func(id int32) bool { return id < 0 || int(id) >= c.Vocab }) {
		return fmt.Errorf("model: eos_token_id %v is not below vocab_size %d", c.EOS, c.Vocab)
	}
	return nil
}
