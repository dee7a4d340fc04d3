package model

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// wrapper is a family of configs whose text_config is a model of text, beside one for images or sounds.
type wrapper struct {
	architecture string
	texts        []string // model_types of text_config, the first one where it has none
	inert        []string // fields about images and sounds alone
}

// wrappers are the families by model_type.
var wrappers = map[string]wrapper{
	"mistral3": {"Mistral3ForConditionalGeneration", []string{"mistral", "ministral3"}, []string{"vision_config",
		"image_token_index", "image_token_id", "projector_hidden_act", "vision_feature_layer",
		"multimodal_projector_bias", "spatial_merge_size"}},
	"gemma3": {"Gemma3ForConditionalGeneration", []string{"gemma3_text"}, []string{"vision_config",
		"image_token_index", "image_token_id", "mm_tokens_per_image", "boi_token_index", "eoi_token_index",
		"boi_token_id", "eoi_token_id"}},
	"gemma4":         {"Gemma4ForConditionalGeneration", []string{"gemma4_text"}, gemma4Media},
	"gemma4_unified": {"Gemma4UnifiedForConditionalGeneration", []string{"gemma4_unified_text"}, gemma4Media},
}

var gemma4Media = []string{"vision_config", "audio_config", "boi_token_id", "eoi_token_id", "image_token_id",
	"video_token_id", "boa_token_id", "eoa_token_id", "eoa_token_index", "audio_token_id", "vision_soft_tokens_per_image"}

// wrapperFile has the fields of a wrapping config that say something about the text. Those of images are inert.
type wrapperFile struct {
	Architectures []string        `json:"architectures"`
	ModelType     string          `json:"model_type"`
	Text          json.RawMessage `json:"text_config"`
	Tied          bool            `json:"tie_word_embeddings"`
	EOS           tokenIDs        `json:"eos_token_id"`
	Quantised     json.RawMessage `json:"quantization_config"`
}

// read reads the config of the text inside a wrapping config. fields are those of raw.
func (kind wrapper) read(raw []byte, text json.RawMessage, fields map[string]json.RawMessage) (*configFile, error) {
	var w wrapperFile
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, fmt.Errorf("model: config.json: %w", err)
	}
	if len(w.Architectures) > 0 && !slices.Contains(w.Architectures, kind.architecture) {
		return nil, fmt.Errorf("%w: config.json: architectures %.200v", ErrUnsupported, w.Architectures)
	}
	err := refuseUnknown("config.json", fields, func(name string, value json.RawMessage) bool {
		return slices.Contains(kind.inert, name) || harmless(name, value)
	}, reflect.TypeFor[wrapperFile]())
	if err != nil {
		return nil, err
	}
	var inner map[string]json.RawMessage
	if err := json.Unmarshal(text, &inner); err != nil || inner == nil {
		return nil, fmt.Errorf("%w: config.json: text_config is missing or no object: take a checkpoint whose "+
			"config.json has one", ErrUnsupported)
	}
	return w.text(text, inner, kind.texts)
}

// text reads text_config, whose fields are given. The wrapping config has its quantisation.
// texts are the model_types that it may have.
func (w *wrapperFile) text(raw json.RawMessage, fields map[string]json.RawMessage, texts []string,
) (*configFile, error) {
	kind := texts[0]
	if f, ok := fields["model_type"]; ok {
		if err := json.Unmarshal(f, &kind); err != nil {
			return nil, fmt.Errorf("model: config.json: text_config: %w", err)
		}
	}
	if !slices.Contains(texts, kind) {
		return nil, fmt.Errorf("%w: config.json: text_config has the model_type %.40q, this build serves %s there",
			ErrUnsupported, kind, strings.Join(texts, " and "))
	}
	if len(w.Quantised) > 0 {
		fields["quantization_config"] = w.Quantised
	}
	f, err := readFamily(raw, fields, families[kind])
	if err != nil {
		return nil, err
	}
	f.ModelType, f.wrapped = kind, true
	if f.Tied = f.Tied || w.Tied; f.EOS == nil {
		f.EOS = w.EOS
	}
	return f, nil
}

// Text returns the tensors of text of a checkpoint that holds others too, under the names of a checkpoint of text
// alone, c with the head that they have, and the number of the other tensors. The head is tied where there is none:
// wrapped configs are published that say nothing of it, or the contrary.
func (c Config) Text(file Tensors) (Config, Tensors, int) {
	if !c.Wrapped {
		return c, file, 0
	}
	t := textTensors{file: file, names: map[string]string{}}
	others := 0
	for _, own := range file.Names() {
		name, ok := textName(own)
		if !ok {
			others++
			continue
		}
		t.names[name] = own
	}
	c.TiedHead = t.names[headName] == ""
	for _, part := range []string{partCodes, partPacked} { // of a quantised head
		if t.names[strings.TrimSuffix(headName, partWeight)+part] != "" {
			c.TiedHead = false
		}
	}
	return c, t, others
}

// textName returns the name that a tensor has in a checkpoint of text alone. Tensors that are not of images keep
// their names, so that unknown ones are refused.
func textName(own string) (name string, ok bool) {
	own = strings.TrimPrefix(own, "model.")
	for _, part := range []string{"vision_tower.", "multi_modal_projector.", "embed_vision.", "vision_embedder.", "audio_tower.",
		"embed_audio."} {
		if strings.HasPrefix(own, part) {
			return "", false
		}
	}
	inner, found := strings.CutPrefix(own, "language_model.")
	switch {
	case strings.HasPrefix(inner, "model.") || strings.HasPrefix(inner, "lm_head."):
		return inner, true // as transformers 4 has them
	case found:
		return "model." + inner, true // as transformers 5 has them
	}
	return own, true
}

// textTensors are the tensors of text of a checkpoint.
type textTensors struct {
	file  Tensors
	names map[string]string // from the name in a checkpoint of text alone to the file's
}

// Tensor returns a tensor of text.
func (t textTensors) Tensor(name string) (weights.Tensor, error) {
	if own, ok := t.names[name]; ok {
		name = own
	}
	x, err := t.file.Tensor(name)
	return x, err
}

// Names returns the names of all tensors of text.
func (t textTensors) Names() (names []string) {
	for name := range t.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
