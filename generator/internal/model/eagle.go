package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Eagle is what an EAGLE-3 head has beside its layer, which is a layer of its Config with q, k and v over the embedding
// and the features together. (Li et al., "EAGLE-3", 2025; SafeAILab/EAGLE, model/cnets.py; for the norms
// vllm-project/speculators.)
type Eagle struct {
	Vocab  int // tokens of the model; Config.Vocab are the head's own, which d2t maps to them
	Target int // hidden size of the model, 0: the head's
	// Layers are the model's layers whose inputs are the features, one after another; nil until [Config.ForTarget] if
	// the file does not name them.
	Layers []int

	NormedResidual bool // norm_before_residual: the layer's residual is the normed feature
	FeaturesNorm   bool // norm_before_fc: one norm over all features
	PartNorms      bool // fc_norm: a norm for each part of the features
	NormedOutput   bool // norm_output: the next draft takes the layer's output after the last norm

	Embedding bool // the head has an embedding of its own; else it takes the model's
	Mapped    bool // the head has d2t; else its tokens are the model's
}

// eagleFile has the fields of an EAGLE-3 head's config.json that a Llama model's has not. Flags may be in eagle_config
// as well.
type eagleFile struct {
	Architectures []string        `json:"architectures"`
	Layer         json.RawMessage `json:"transformer_layer_config"` // speculators
	Kind          string          `json:"speculators_model_type"`
	Eagle         json.RawMessage `json:"eagle_config"`
	DraftVocab    *int            `json:"draft_vocab_size"`
	Target        *int            `json:"target_hidden_size"`
	eagleFlags
}

// eagleFlags are the fields that are at the top or in eagle_config.
type eagleFlags struct {
	LayerIDs []int `json:"eagle_aux_hidden_state_layer_ids"`
	UseAux   *bool `json:"use_aux_hidden_state"`
	// Of NVIDIA's Model-Optimizer: whether there are the norms of embedding and output.
	InputNorm *bool `json:"use_input_layernorm_in_first_layer"`
	LastNorm  *bool `json:"use_last_layernorm"`

	NormedResidual bool `json:"norm_before_residual"`
	FeaturesNorm   bool `json:"norm_before_fc"`
	PartNorms      bool `json:"fc_norm"`
	NormedOutput   bool `json:"norm_output"`
}

// inertFlags lists the fields of eagle_config whose only values here change nothing. (NVIDIA/Model-Optimizer,
// export/plugins/hf_spec_export.py.)
var inertFlags = map[string]string{"next_layer_regular": "true", "parallel_draft_step": "1",
	"parallel_draft_heads_num_layers": "1", "eagle_decoder_type": `"llama"`}

// inertEagle lists the fields of speculators that say how a head was trained or is used.
var inertEagle = []string{"speculators_config", "speculators_version", "has_no_defaults_at_init", "embed_requires_grad",
	"enable_sp_ulysses", "tie_word_embeddings", "model_type"}

// eagleArchitectures are the names of EAGLE-3 heads over Llama's layer.
var eagleArchitectures = []string{"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM",
	"Eagle3Speculator", "Eagle3DraftModel"}

// IsEagle reports whether config.json is that of an EAGLE-3 head.
func IsEagle(config []byte) bool {
	var f struct {
		DraftVocab json.RawMessage `json:"draft_vocab_size"`
		Eagle      json.RawMessage `json:"eagle_config"`
		Kind       json.RawMessage `json:"speculators_model_type"`
		All        []string        `json:"architectures"`
	}
	if json.Unmarshal(config, &f) != nil {
		return false
	}
	return len(f.DraftVocab)+len(f.Eagle)+len(f.Kind) > 0 ||
		slices.ContainsFunc(f.All, func(name string) bool { return strings.Contains(name, "Eagle3") })
}

// ParseEagle reads the config.json of an EAGLE-3 head, in the form of SafeAILab or of speculators. Errors are as those
// of [ParseConfig].
func ParseEagle(config []byte) (c Config, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return c, fmt.Errorf("model: config.json: %w", err)
	}
	var f eagleFile
	if err := json.Unmarshal(config, &f); err != nil {
		return c, fmt.Errorf("model: config.json: %w", err)
	}
	if err := f.readFlags(); err != nil {
		return c, err
	}
	if err := f.supported(); err != nil {
		return c, err
	}
	layer, err := f.layer(fields)
	if err != nil {
		return c, err
	}
	if c, err = layer.config(); err == nil {
		err = c.check()
	}
	if err != nil {
		return c, err
	}
	return f.config(c)
}

// readFlags takes the flags of eagle_config.
func (f *eagleFile) readFlags() error {
	if len(f.Eagle) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(f.Eagle, &fields); err != nil {
		return fmt.Errorf("model: config.json: eagle_config: %w", err)
	}
	if err := json.Unmarshal(f.Eagle, &f.eagleFlags); err != nil {
		return fmt.Errorf("model: config.json: eagle_config: %w", err)
	}
	return refuseUnknown("config.json: eagle_config", fields, func(name string, value json.RawMessage) bool {
		return inertFlags[name] == string(value)
	}, reflect.TypeFor[eagleFlags]())
}

// supported refuses heads of another kind than EAGLE-3 over one layer.
func (f *eagleFile) supported() error {
	for _, r := range []struct {
		field string
		value any
		bad   bool
	}{
		{"speculators_model_type", f.Kind, f.Kind != "" && f.Kind != "eagle3"},
		{"architectures", f.Architectures, len(f.Architectures) > 0 && !slices.ContainsFunc(f.Architectures,
			func(name string) bool { return slices.Contains(eagleArchitectures, name) })},
		{"use_aux_hidden_state", false, f.UseAux != nil && !*f.UseAux},
		{"use_input_layernorm_in_first_layer", false, f.InputNorm != nil && !*f.InputNorm},
		{"use_last_layernorm", false, f.LastNorm != nil && !*f.LastNorm},
		{"norm_before_fc", "beside fc_norm", f.FeaturesNorm && f.PartNorms},
		{"eagle_aux_hidden_state_layer_ids", f.LayerIDs, len(f.LayerIDs) > maxParts},
		{"speculators_model_type", "without transformer_layer_config", f.Kind != "" && len(f.Layer) == 0},
	} {
		if r.bad {
			return fmt.Errorf("%w: config.json: %s %.200v", ErrUnsupported, r.field, r.value)
		}
	}
	return nil
}

// maxParts bounds the hidden states that are a head's features.
const maxParts = 8

// layer reads the config of the head's layer: of the whole file, or of transformer_layer_config.
func (f *eagleFile) layer(fields map[string]json.RawMessage) (*configFile, error) {
	inner, speculators := maps.Clone(fields), len(f.Layer) > 0
	for _, t := range []reflect.Type{reflect.TypeFor[eagleFile](), reflect.TypeFor[eagleFlags]()} {
		for i := range t.NumField() {
			delete(inner, t.Field(i).Tag.Get("json"))
		}
	}
	if speculators {
		err := refuseUnknown("config.json", inner, func(name string, value json.RawMessage) bool {
			return slices.Contains(inertEagle, name) || harmless(name, value)
		})
		if err != nil {
			return nil, err
		}
		if inner = nil; json.Unmarshal(f.Layer, &inner) != nil || inner == nil {
			return nil, fmt.Errorf("%w: config.json: transformer_layer_config is no object", ErrUnsupported)
		}
	}
	family, err := eagleFamily(inner["model_type"], speculators)
	if err != nil {
		return nil, err
	}
	delete(inner, "architectures") // of the model that the layer is taken from
	delete(inner, "tie_word_embeddings")
	if len(inner["quantization_config"]) > 0 {
		return nil, fmt.Errorf("%w: config.json: a quantization_config of an EAGLE-3 head", ErrUnsupported)
	}
	raw, err := json.Marshal(inner)
	if err != nil {
		return nil, err
	}
	return readFamily(raw, inner, family)
}

// eagleFamily returns the family of a head's layer. Speculators leaves out what is the default of transformers.
func eagleFamily(modelType json.RawMessage, speculators bool) (family, error) {
	kind := "llama"
	if len(modelType) > 0 && json.Unmarshal(modelType, &kind) != nil || kind != "llama" && kind != "qwen3" {
		return family{}, fmt.Errorf("%w: config.json: model_type of an EAGLE-3 head's layer is %.60s, this build "+
			"serves llama and qwen3", ErrUnsupported, modelType)
	}
	f := families[kind]
	if speculators && kind == "llama" {
		f.defaults = configFile{Vocab: 32000, Hidden: 4096, Inner: 11008, Layers: 1, Heads: 32, Context: 2048,
			Eps: 1e-6}
	}
	f.defaults.ModelType = kind
	return f, nil
}

// config makes the head's config of that of its layer.
func (f *eagleFile) config(c Config) (Config, error) {
	e := &Eagle{Vocab: c.Vocab, Target: c.Hidden, NormedResidual: f.NormedResidual, FeaturesNorm: f.FeaturesNorm,
		PartNorms: f.PartNorms, NormedOutput: f.NormedOutput}
	if f.Target != nil {
		e.Target = *f.Target
	}
	if f.DraftVocab != nil {
		c.Vocab = *f.DraftVocab
	}
	for _, d := range []struct {
		field   string
		n, most int
	}{{"draft_vocab_size", c.Vocab, e.Vocab}, {"target_hidden_size", e.Target, maxDimension},
		{"num_hidden_layers", c.Layers, 1}} {
		if d.n < 1 || d.n > d.most {
			return c, outside(d.field, d.n, 1, d.most)
		}
	}
	e.Layers = inputsOf(f.LayerIDs)
	c.Eagle, c.EOS, c.TiedHead = e, nil, false
	return c, nil
}

// inputsOf returns the layers whose inputs have these ids. Two conventions are in use: an id is the layer's whose input
// it names, or whose output. The second is told by the first id, 1, the output of the default: layer 2's input.
// (sgl-project/sglang, issue 25454.)
func inputsOf(ids []int) []int {
	if len(ids) == 0 {
		return nil
	}
	layers := slices.Clone(ids)
	if ids[0] == 1 {
		for i := range layers {
			layers[i]++
		}
	}
	return layers
}

// ForTarget returns the config of an EAGLE-3 head for the model that it guesses for: with the layers that the paper
// takes if it names none. It refuses a head of another model.
func (c Config) ForTarget(model Config) (Config, error) {
	e := *c.Eagle
	if e.Layers == nil {
		e.Layers = []int{2, model.Layers / 2, model.Layers - 3}
	}
	c.Eagle = &e
	for _, d := range []struct {
		what        string
		head, model int
		differ      bool
	}{{"a vocabulary", e.Vocab, model.Vocab, true}, {"hidden states", e.Target, model.Hidden, true},
		{"an embedding, which it has not itself,", c.Hidden, model.Hidden, !e.Embedding}} {
		if d.differ && d.head != d.model {
			return c, fmt.Errorf("%w: the EAGLE-3 head is for a model with %s of %d, this one has %d: %s", ErrTensor,
				d.what, d.head, d.model, otherHead)
		}
	}
	if model.streamDivisor() != 1 {
		return c, fmt.Errorf("%w: an EAGLE-3 head for a %s, whose hidden states a device has divided by %v: take "+
			"--draft lookup", ErrUnsupported, model.Name, model.streamDivisor())
	}
	for _, layer := range e.Layers {
		if layer < 0 || layer >= model.Layers {
			return c, fmt.Errorf("%w: the EAGLE-3 head takes the input of layer %d, the model has %d layers: %s",
				ErrUnsupported, layer, model.Layers, otherHead)
		}
	}
	return c, nil
}

// layerInput returns the columns of what a layer's q, k and v take.
func (c Config) layerInput() int {
	if c.Eagle != nil {
		return 2 * c.Hidden
	}
	return c.Hidden
}

// features returns the columns of a row of features; 0 of a model.
func (e *Eagle) features() int {
	if e == nil {
		return 0
	}
	return e.parts() * e.Target
}

// otherHead is what to do about a head of another model.
const otherHead = "take a head that was trained for this model, or --draft lookup"

// parts returns the number of hidden states that are a head's features.
func (e *Eagle) parts() int {
	if e.Layers == nil {
		return 3
	}
	return len(e.Layers)
}
