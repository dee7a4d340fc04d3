package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"reel.internal/reel/generator/internal/weights"
)

// Embedding is what the checkpoint of a model that is meant for embeddings says of them. Such a model gives each text
// the final norm of its last token's hidden state, and draws no tokens: its head is neither loaded nor needed.
type Embedding struct {
	// Unit says that the model's own pipeline makes vectors of length 1.
	Unit bool
	// Least is the fewest leading elements of a vector that are an embedding too (Kusupati et al., "Matryoshka
	// Representation Learning", 2022); 0: only the whole vector is one.
	Least int
	// Prompts are texts to put before a text, by their names, and Default is the name of the one that a text gets
	// otherwise; "": none.
	Prompts map[string]string
	Default string
}

// leastElements are the fewest leading elements that are an embedding, by family. Qwen3-Embedding was trained for 32
// and more (its model card); checkpoints do not say it.
var leastElements = map[string]int{"qwen3": 32}

// The files in which sentence-transformers says how it makes embeddings of a model.
const (
	modulesFile = "modules.json"                      // its steps
	poolingFile = "config.json"                       // in the folder of the step that pools
	promptsFile = "config_sentence_transformers.json" // texts before a text
	lengthFile  = "sentence_bert_config.json"         // bounds of a text
)

// Embedder returns c as the config of a model that is meant for embeddings if the checkpoint has a modules.json, and
// otherwise c as it is. read returns the content of a file of the checkpoint, or [fs.ErrNotExist]. Errors:
// [ErrUnsupported] for steps that this build does not compute, and for a model without a head that is not meant for
// embeddings; malformed JSON, and those of read.
func (c Config) Embedder(read func(name string) ([]byte, error)) (Config, error) {
	var steps []struct{ Path, Type string }
	found, err := readJSON(read, modulesFile, &steps)
	if err == nil && !found && c.headless {
		err = fmt.Errorf("%w: config.json: architectures names a model without a head, and there is no %s that says "+
			"what it is for", ErrUnsupported, modulesFile)
	}
	if err != nil || !found {
		return c, err
	}
	e := &Embedding{}
	for i, step := range steps {
		kind := step.Type[strings.LastIndexByte(step.Type, '.')+1:]
		if !strings.HasPrefix(step.Type, "sentence_transformers.") || i > 2 || kind != [...]string{"Transformer",
			"Pooling", "Normalize"}[i] || i == 0 && step.Path != "" {
			return c, fmt.Errorf("%w: %s: step %d is %.80q in %.40q: this build computes a Transformer in the "+
				"checkpoint's own folder, then Pooling, then Normalize or nothing", ErrUnsupported, modulesFile, i,
				step.Type, step.Path)
		}
	}
	if len(steps) < 2 {
		return c, fmt.Errorf("%w: %s has no step that pools", ErrUnsupported, modulesFile)
	}
	e.Unit = len(steps) > 2
	if err := checkPooling(read, steps[1].Path); err != nil {
		return c, err
	}
	if err := e.readPrompts(read); err != nil {
		return c, err
	}
	if err := c.boundText(read); err != nil {
		return c, err
	}
	return c.embedding(e), nil
}

// embedding returns c with e and without a head of its own.
func (c Config) embedding(e *Embedding) Config {
	if e.Least = leastElements[c.Name]; e.Least > c.Hidden {
		e.Least = 0
	}
	c.Embedding, c.TiedHead = e, true
	return c
}

// readJSON reads a file of the checkpoint into v, and reports whether it is there.
func readJSON(read func(string) ([]byte, error), name string, v any) (bool, error) {
	raw, err := read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		if err = json.Unmarshal(raw, v); err != nil {
			err = fmt.Errorf("model: %s: %w", name, err)
		}
	}
	return true, err
}

// pooling is the config of the step that pools, as sentence-transformers writes it before and after version 6.
type pooling struct {
	Mode     any  `json:"pooling_mode"` // a text or a list of texts
	Last     bool `json:"pooling_mode_lasttoken"`
	First    bool `json:"pooling_mode_cls_token"`
	Mean     bool `json:"pooling_mode_mean_tokens"`
	Max      bool `json:"pooling_mode_max_tokens"`
	Root     bool `json:"pooling_mode_mean_sqrt_len_tokens"`
	Weighted bool `json:"pooling_mode_weightedmean_tokens"`
}

// modes returns the names of the kinds of pooling that p asks for, as version 6 has them.
func (p pooling) modes() (names []string) {
	switch mode := p.Mode.(type) {
	case string:
		return []string{mode}
	case []any:
		for _, m := range mode {
			names = append(names, fmt.Sprint(m))
		}
		return names
	}
	for _, m := range []struct {
		name string
		on   bool
	}{{"cls", p.First}, {"max", p.Max}, {"mean", p.Mean}, {"mean_sqrt_len_tokens", p.Root},
		{"weightedmean", p.Weighted}, {"lasttoken", p.Last}} {
		if m.on {
			names = append(names, m.name)
		}
	}
	return names
}

// checkPooling refuses all kinds of pooling but that of the last token.
func checkPooling(read func(string) ([]byte, error), folder string) error {
	if !fs.ValidPath(folder) || folder == "." {
		return fmt.Errorf("%w: %s: the step that pools is in %.80q", ErrUnsupported, modulesFile, folder)
	}
	var p pooling
	name := folder + "/" + poolingFile
	found, err := readJSON(read, name, &p)
	switch modes := p.modes(); {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("model: %w: %s, which %s names: download the whole repository", fs.ErrNotExist, name,
			modulesFile)
	case !slices.Equal(modes, []string{"lasttoken"}):
		return fmt.Errorf("%w: %s: pooling %.80v: this build computes lasttoken alone", ErrUnsupported, name, modes)
	}
	return nil
}

// readPrompts reads the texts that a text may have before it.
func (e *Embedding) readPrompts(read func(string) ([]byte, error)) error {
	var f struct {
		Prompts map[string]string `json:"prompts"`
		Default string            `json:"default_prompt_name"`
	}
	if _, err := readJSON(read, promptsFile, &f); err != nil {
		return err
	}
	if _, ok := f.Prompts[f.Default]; f.Default != "" && !ok {
		return fmt.Errorf("model: %s: default_prompt_name is %.40q, and prompts has none of that name", promptsFile,
			f.Default)
	}
	for name := range f.Prompts {
		if len(f.Prompts) > maxPrompts || name == "" || len(name) > maxPromptName {
			return fmt.Errorf("model: %s: %d prompts, one of them named %.40q: wants at most %d with names of 1 to %d bytes",
				promptsFile, len(f.Prompts), name, maxPrompts, maxPromptName)
		}
	}
	e.Prompts, e.Default = f.Prompts, f.Default
	return nil
}

// Bounds of a checkpoint's own prompts, whose names every client is told.
const maxPrompts, maxPromptName = 64, 64

// boundText lowers the context to the longest text that the checkpoint's own pipeline takes.
func (c *Config) boundText(read func(string) ([]byte, error)) error {
	var f struct {
		Most  *int `json:"max_seq_length"`
		Lower bool `json:"do_lower_case"`
	}
	_, err := readJSON(read, lengthFile, &f)
	switch {
	case err != nil:
		return err
	case f.Lower:
		return fmt.Errorf("%w: %s: do_lower_case true", ErrUnsupported, lengthFile)
	case f.Most != nil && *f.Most < 1:
		return fmt.Errorf("model: %s: max_seq_length is %d, wants 1 and more", lengthFile, *f.Most)
	case f.Most != nil && *f.Most < c.Context:
		c.Context, c.ContextReason = *f.Most, lengthFile+" says so"
	}
	return nil
}

// ggufPooling names the values of pooling_type from 1 on. (llama.cpp: llama_pooling_type.)
var ggufPooling = []string{"mean", "cls", "last", "rank"}

// pooling reads how a GGUF file's model makes embeddings. Its vectors have length 1, as llama.cpp's do.
func (r *ggufReader) pooling(c *Config) {
	kind, ok := r.metadata.Uint(r.arch + "." + keyPooling)
	switch {
	case !r.has(r.arch + "." + keyPooling), ok && kind == 0:
	case !ok || kind > uint64(len(ggufPooling)):
		r.refuse("%s.%s is no kind of pooling", r.arch, keyPooling)
	case ggufPooling[kind-1] != "last":
		r.refuse("%s.%s is %d, %s: this build computes 3, last, alone", r.arch, keyPooling, kind, ggufPooling[kind-1])
	default:
		*c = c.embedding(&Embedding{Unit: true})
	}
}

// Bare returns the tensors of a checkpoint under the names that they have with a head, if it was saved without one.
func (c Config) Bare(file Tensors) Tensors {
	if _, err := file.Tensor(strings.TrimPrefix(embeddingName, barePrefix)); c.Embedding == nil || err != nil {
		return file
	}
	return bareTensors{file}
}

// barePrefix begins the names of all tensors of a model within a model with a head.
const barePrefix = "model."

// bareTensors are the tensors of a checkpoint without a head.
type bareTensors struct{ file Tensors }

// Tensor returns a tensor.
func (t bareTensors) Tensor(name string) (weights.Tensor, error) {
	return t.file.Tensor(strings.TrimPrefix(name, barePrefix))
}

// Names returns the names of all tensors.
func (t bareTensors) Names() (names []string) {
	for _, name := range t.file.Names() {
		names = append(names, barePrefix+name)
	}
	return names
}
