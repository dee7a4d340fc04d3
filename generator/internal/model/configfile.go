package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// configFile is config.json as Hugging Face writes it, before and after version 5 of
// transformers. It holds the family's defaults before the file is decoded into it.
type configFile struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	Vocab         int      `json:"vocab_size"`
	Hidden        int      `json:"hidden_size"`
	Inner         int      `json:"intermediate_size"`
	Layers        int      `json:"num_hidden_layers"`
	Heads         int      `json:"num_attention_heads"`
	KVHeads       *int     `json:"num_key_value_heads"`
	HeadDim       int      `json:"head_dim"`
	Context       int      `json:"max_position_embeddings"`
	Eps           float64  `json:"rms_norm_eps"`
	Theta         *float64 `json:"rope_theta"`
	RoPE          *ropes   `json:"rope_parameters"`
	RoPEScaling   *ropes   `json:"rope_scaling"`
	Fraction      float64  `json:"partial_rotary_factor"`
	Tied          bool     `json:"tie_word_embeddings"`
	Act           string   `json:"hidden_act"`
	AttentionBias bool     `json:"attention_bias"`
	Causal        *bool    `json:"is_causal"` // false: tokens see those after them, too; nil: they do not
	MLPBias       bool     `json:"mlp_bias"`
	PretrainingTP int      `json:"pretraining_tp"`
	EOS           tokenIDs `json:"eos_token_id"`

	Window      *int     `json:"sliding_window"`
	UseWindow   bool     `json:"use_sliding_window"`
	WindowFrom  int      `json:"max_window_layers"`
	LayerKinds  []string `json:"layer_types"`
	OriginalMax int      `json:"original_max_position_embeddings"` // wins over that of the scaling

	NoRoPE         []int `json:"no_rope_layers"` // 1: the layer has RoPE
	NoRoPEInterval int   `json:"no_rope_layer_interval"`

	Quantised    json.RawMessage `json:"quantization_config"`
	quantisation Quantisation    // which Quantised says
	wrapped      bool            // it is the text_config of another config
	localRoPE    *ropes          // of layers with windows, where rope_parameters has it apart
	own          ownFields       // of the family, or nil
}

// tokenIDs is a JSON number, a list of numbers, or null.
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

// ParseConfig reads config.json and generation_config.json; the latter may be nil. The
// end-of-sequence tokens of generation_config.json replace those of config.json;
// suppressed tokens are in generation_config.json alone. The error
// wraps ErrUnsupported if the file asks for something that the forward pass does not
// compute; other errors are malformed JSON and values out of bounds.
func ParseConfig(config, generation []byte) (Config, error) {
	f, err := readConfig(config)
	if err != nil {
		return Config{}, err
	}
	c, err := f.config()
	if err != nil {
		return Config{}, err
	}
	if generation != nil {
		var g struct {
			EOS        tokenIDs `json:"eos_token_id"`
			Suppressed tokenIDs `json:"suppress_tokens"`
		}
		if err := json.Unmarshal(generation, &g); err != nil {
			return Config{}, fmt.Errorf("model: generation_config.json: %w", err)
		}
		if len(g.EOS) > 0 {
			c.EOS = g.EOS
		}
		slices.Sort(g.Suppressed)
		c.Suppressed = slices.Compact(slices.DeleteFunc(g.Suppressed, func(id int32) bool {
			return id < 0 || int(id) >= c.Vocab // transformers passes them over
		}))
	}
	return c, c.check()
}

func readConfig(raw []byte) (*configFile, error) {
	var fields map[string]json.RawMessage
	var kind struct {
		ModelType string          `json:"model_type"`
		Text      json.RawMessage `json:"text_config"`
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("model: config.json: %w", err)
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, fmt.Errorf("model: config.json: %w", err)
	}
	if w, ok := wrappers[kind.ModelType]; ok {
		return w.read(raw, kind.Text, fields)
	}
	family, ok := families[kind.ModelType]
	if !ok {
		return nil, fmt.Errorf("%w: config.json: model_type is %.40q, this build serves %s, %s",
			ErrUnsupported, kind.ModelType, strings.Join(slices.Sorted(maps.Keys(families)), ", "),
			strings.Join(slices.Sorted(maps.Keys(wrappers)), ", "))
	}
	return readFamily(raw, fields, family)
}

// readFamily reads the config of a family. fields are those of raw.
func readFamily(raw []byte, fields map[string]json.RawMessage, family family) (*configFile, error) {
	quantisation, err := readQuantisation(fields["quantization_config"])
	if err != nil {
		return nil, err
	}
	f := family.defaults
	f.quantisation = quantisation
	if f.PretrainingTP, f.Act = 1, family.act(); f.Fraction == 0 {
		f.Fraction = 1
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("model: config.json: %w", err)
	}
	if f.RoPE == nil && f.RoPEScaling == nil && family.rope != nil {
		own := *family.rope
		f.RoPE = &own
	}
	if err := f.splitRoPE(family); err != nil {
		return nil, err
	}
	known := []reflect.Type{reflect.TypeFor[configFile]()}
	if family.own != nil {
		f.own = family.own()
		if err := json.Unmarshal(raw, f.own); err != nil {
			return nil, fmt.Errorf("model: config.json: %w", err)
		}
		f.own.fill(&f)
		known = append(known, reflect.TypeOf(f.own).Elem())
	}
	if err := f.supported(family); err != nil {
		return nil, err
	}
	if quantisation.Method == methodMXFP4 && family.architecture != gptOss.architecture {
		return nil, refuseQuantised("quant_method is %q in a %s", methodMXFP4, f.ModelType)
	}
	if err := f.checkNumbers(); err != nil {
		return nil, err
	}
	inert := func(name string, value json.RawMessage) bool {
		return slices.Contains(family.inert, name) || harmless(name, value)
	}
	if err := refuseUnknown("config.json", fields, inert, known...); err != nil {
		return nil, err
	}
	return &f, refuseUnknownRoPE("config.json: ", fields, "rope_parameters", "rope_scaling")
}

// refuseUnknownRoPE refuses unknown parameters of RoPE in these objects, and in those by kind of layer inside.
func refuseUnknownRoPE(place string, fields map[string]json.RawMessage, names ...string) error {
	for _, name := range names {
		var sub map[string]json.RawMessage
		if json.Unmarshal(fields[name], &sub) != nil {
			continue
		}
		if err := refuseUnknown(place+name, sub, inertParameter, reflect.TypeFor[ropes]()); err != nil {
			return err
		}
		if err := refuseUnknownRoPE(place+name+": ", sub, fullLayer, slidingLayer); err != nil {
			return err
		}
	}
	return nil
}
