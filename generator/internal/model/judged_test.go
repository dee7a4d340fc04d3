package model_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
)

// openedModel is a model that Reel loads.
type openedModel struct {
	c       model.Config
	tensors model.Tensors
}

// A judged model is quantised, and has a control: the values of its weights, rounded to bfloat16. The two are nearly
// equal, so their errors grow alike from layer to layer.
type judged struct {
	quantised, control openedModel
	values, rounded    hfModel // what transformers gets of the two
	name               string  // of format and seed
}

// folder returns where transformers reads values or rounded, below dir.
func (j *judged) folder(dir, kind string) string { return filepath.Join(dir, j.name, kind) }

const (
	seeds     = 6  // models of each format
	sequences = 48 // of each model
	prompted  = 64 // tokens of a prompt
	sampled   = 16 // logits at the end of each prompt, and after it
)

// judgedShape is the shape of all models.
func judgedShape() model.Config {
	c := wide()["llama"]
	c.Layers, c.Vocab = 3, 512
	return c
}

// judgedConfig is judgedShape as the config.json of Hugging Face's formats. There the head is not tied.
var judgedConfig = strings.NewReplacer(`"vocab_size":96`, `"vocab_size":512`, `"hidden_size":128`, `"hidden_size":256`,
	`"num_hidden_layers":1`, `"num_hidden_layers":3`, `"head_dim":32`, `"head_dim":64`,
	`"max_position_embeddings":256`, `"max_position_embeddings":128`).Replace(hfConfig)

// formatNames returns all quantised formats of GGUF and of Hugging Face.
func formatNames() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(picks())) {
		names = append(names, "gguf "+name)
	}
	return append(names, slices.Sorted(maps.Keys(hfFormats))...)
}

// newJudged returns a random model in a format.
func newJudged(t testing.TB, format string, seed int, change func(weights.Tensor) weights.Tensor) (j judged, err error) {
	if name, ok := strings.CutPrefix(format, "gguf "); ok {
		j, err = newJudgedGGUF(t, picks()[name], seed, change)
	} else {
		j, err = newJudgedHF(t, hfFormats[format], seed, change)
	}
	j.name = fmt.Sprint(format, " ", seed)
	return j, err
}

func newJudgedGGUF(t testing.TB, pick func(string) weights.DType, seed int,
	change func(weights.Tensor) weights.Tensor) (j judged, err error) {
	c := judgedShape()
	form := func(as weights.DType) random {
		w := newRandom(c, pick, as)
		w.seed = uint64(seed)
		return w
	}
	j.quantised.c, j.quantised.tensors, err = parseGGUF(t, ggufmake.Pairs(c), ggufmake.Tensors(c, form(0), change))
	j.values, j.rounded = tensorsOf(c, form(weights.F32)), tensorsOf(c, form(weights.BF16))
	j.control = openedModel{c, j.rounded}
	return j, err
}

func newJudgedHF(t testing.TB, f hfFormat, seed int, change func(weights.Tensor) weights.Tensor) (j judged, err error) {
	m, plain := newHFModelAs(t, rand.New(rand.NewPCG(uint64(seed), 24)), f, judgedConfig)
	for name, x := range plain.tensors { // what is not quantised is published in bfloat16
		if m.tensors[name].DType == weights.F32 {
			plain.tensors[name] = rounded(x)
			m.tensors[name] = plain.tensors[name]
		}
	}
	for name, x := range m.tensors {
		m.tensors[name] = change(x)
	}
	j.values, j.rounded = plain, hfModel{base: plain.base, tensors: map[string]weights.Tensor{}}
	for name, x := range plain.tensors {
		j.rounded.tensors[name] = rounded(x)
	}
	var wrong error
	j.quantised.c, j.quantised.tensors, err = openHF(m.config(), m.file())
	j.control.c, j.control.tensors, wrong = openHF(j.rounded.config(), j.rounded.file())
	return j, errors.Join(err, wrong)
}

// tensorsOf returns all tensors of a model.
func tensorsOf(c model.Config, from random) hfModel {
	m := hfModel{tensors: map[string]weights.Tensor{}}
	for _, s := range c.Tensors() {
		m.tensors[s.Name], _ = from.Tensor(s.Name) // which has them all
	}
	return m
}

// Tensor returns a tensor.
func (m hfModel) Tensor(name string) (weights.Tensor, error) {
	if x, ok := m.tensors[name]; ok {
		return x, nil
	}
	return weights.Tensor{}, weights.ErrMissing
}

// Names returns the names of all tensors.
func (m hfModel) Names() []string { return slices.Sorted(maps.Keys(m.tensors)) }

// rounded returns a matrix in bfloat16, and a vector as it is.
func rounded(x weights.Tensor) weights.Tensor {
	if len(x.Shape) == 1 || x.DType == weights.BF16 {
		return x
	}
	var data []byte
	for i := range x.Shape[0] * x.Shape[1] {
		data = binary.LittleEndian.AppendUint16(data, bfloat16(x.Float(i)))
	}
	return weights.Tensor{Name: x.Name, DType: weights.BF16, Shape: x.Shape, Data: data}
}

// bfloat16 returns the bits of the nearest bfloat16.
func bfloat16(v float32) uint16 {
	bits := math.Float32bits(v)
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// write writes the checkpoints of values and rounded values, and drops the former, which nobody else needs.
func (j *judged) write(dir string, tokens [][]int32) error {
	err := errors.Join(j.values.write(j.control.c, tokens, j.folder(dir, "values")),
		j.rounded.write(j.control.c, tokens, j.folder(dir, "rounded")))
	j.values = hfModel{}
	return err
}

// write writes a checkpoint that transformers reads, and the tokens of which it gives the last logits.
func (m hfModel) write(c model.Config, tokens [][]int32, dir string) error {
	config, err := json.Marshal(map[string]any{"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama",
		"vocab_size": c.Vocab, "hidden_size": c.Hidden, "intermediate_size": c.Inner, "num_hidden_layers": c.Layers,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
		"max_position_embeddings": c.Context, "rms_norm_eps": c.RMSNormEps, "rope_theta": c.RoPETheta, "hidden_act": "silu",
		"tie_word_embeddings": c.TiedHead})
	list, wrong := json.Marshal(map[string]any{"tokens": tokens, "last": 2 * sampled})
	return errors.Join(err, wrong, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600),
		os.WriteFile(filepath.Join(dir, "tokens.json"), list, 0o600),
		os.WriteFile(filepath.Join(dir, "model.safetensors"), m.file(), 0o600))
}

// tokensOf returns the sequences of the models of a seed: random tokens, of which the last ones follow a prompt.
func tokensOf(seed int) (all [][]int32) {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	for range sequences {
		tokens := make([]int32, prompted+sampled)
		for i := range tokens {
			tokens[i] = r.Int32N(int32(judgedShape().Vocab))
		}
		all = append(all, tokens)
	}
	return all
}
