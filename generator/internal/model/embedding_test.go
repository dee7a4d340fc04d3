package model_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/kernels"
	"reel.internal/reel/kernels/device"
)

const embedder = "testdata/qwen3-embedding"

// embedderFile reads a file of the checkpoint for embeddings.
func embedderFile(name string) ([]byte, error) { return os.ReadFile(filepath.Join(embedder, name)) }

// openEmbedder opens the checkpoint for embeddings.
func openEmbedder(t *testing.T) (model.Config, model.Tensors) {
	t.Helper()
	raw, err := embedderFile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseConfig(raw, nil)
	if err == nil {
		c, err = c.Embedder(embedderFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err := weights.Open(os.DirFS(embedder))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return c, c.Bare(w)
}

// embeddedText is a text of the checkpoint for embeddings, and what sentence-transformers computes for it.
type embeddedText struct {
	Text, Prompt string
	Tokens       []int32
	vector, unit []float32
}

func goldenVectors(t *testing.T, hidden int) (all []embeddedText) {
	t.Helper()
	raw, err := embedderFile("golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	values, err := embedderFile("vectors.f32")
	if err != nil || len(values) != len(all)*2*hidden*4 {
		t.Fatalf("%d texts and %d bytes of vectors: %v", len(all), len(values), err)
	}
	for i := range values[:len(values)/4] {
		v, g := math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:])), &all[i/2/hidden]
		if i/hidden%2 == 0 {
			g.vector = append(g.vector, v)
		} else {
			g.unit = append(g.unit, v)
		}
	}
	return all
}

// A model for embeddings is compared with sentence-transformers in float32 on the same weights: vectors are within
// 1e-4 relative, with weights in bfloat16 within 2e-2, and chunks of any size give the same bits.
func TestEmbeddingsEqualSentenceTransformers(t *testing.T) {
	c, w := openEmbedder(t)
	h := device.NewHost(device.HostOptions{})
	t.Cleanup(h.Close)
	if !c.Embedding.Unit || c.Embedding.Least != 32 || len(c.Embedding.Prompts) != 2 || c.Embedding.Default != "" {
		t.Errorf("the checkpoint says %+v", c.Embedding)
	}
	for _, test := range []struct {
		weights model.Tensors
		within  float64
	}{{widened(w), 1e-4}, {w, 2e-2}} {
		m, err := model.Load(h, c, test.weights, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("vectors differ by %.1e relative at most", compareEmbeddings(t, h, m, kernels.F32, test.within))
	}
}

// compareEmbeddings compares all vectors, in chunks of several sizes, and returns the largest relative error.
func compareEmbeddings(t *testing.T, dev device.Device, m *model.Model, kv kernels.DType,
	within float64) (worst float64) {
	t.Helper()
	for _, g := range goldenVectors(t, m.Config.Hidden) {
		var first []float32
		for _, chunk := range []int{128, 7, 1} {
			r := newRunner(t, dev, m, 128, kv)
			record, v := r.prompt(g.Tokens, chunk), make([]float32, m.Config.Hidden)
			r.memory.Vector(r.next-1, 0, v)
			r.free()
			if record.Count != 1 || record.Generation != 1 || record.Logprob != 0 {
				t.Errorf("the vector's record is %+v", record)
			}
			if first == nil {
				first = v
			}
			if !slices.Equal(v, first) {
				t.Errorf("%q: chunks of %d give other bits", g.Text, chunk)
			}
			worst = max(worst, relativeError(v, g.vector))
		}
	}
	if !(worst < within) {
		t.Errorf("vectors differ by %.1e relative, want under %.1e", worst, within)
	}
	return worst
}

// A pass of a model for embeddings has neither head nor sampling, and its plan no memory for logits.
func TestPassOfEmbeddings(t *testing.T) {
	c, w := openEmbedder(t)
	h := device.NewHost(device.HostOptions{})
	t.Cleanup(h.Close)
	m, err := model.Load(h, c, w, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	memory, err := m.NewStepMemory(h, model.Geometry{MaxRows: 4, Slots: 2, MaxSamples: 2, Context: 64, PageTokens: 16,
		Pages: 8, RingSlots: 2})
	if err != nil {
		t.Fatal(err)
	}
	if n := memory.Logits().Bytes(); n != 0 {
		t.Errorf("logits take %d bytes", n)
	}
	for _, class := range []kernels.Class{kernels.Prefill, kernels.Decode} {
		s := &recorder{}
		if err := m.Forward(s, memory, model.Shape{Class: class, Rows: 4, Samples: 2}); err != nil {
			t.Fatal(err)
		}
		if last := s.kernels[len(s.kernels)-1]; last != "vector" || slices.Contains(s.kernels, "head") ||
			slices.Contains(s.kernels, "sample") {
			t.Errorf("a pass of class %v launches %v", class, s.kernels)
		}
	}
}

// recorder is a stream that notes the ops launched on it.
type recorder struct {
	device.Stream
	kernels []string
}

func (r *recorder) Launch(op device.Op) error {
	r.kernels = append(r.kernels, op.Kernel())
	return op.Check()
}

// modules returns a modules.json with steps of these kinds, in the form of version 2 or 6 of sentence-transformers.
func modules(kinds ...string) string {
	var all []string
	for i, kind := range kinds {
		path := ""
		if i > 0 {
			path = "1_Pooling"
		}
		all = append(all, `{"idx": 0, "path": "`+path+`", "type": "`+kind+`"}`)
	}
	return "[" + strings.Join(all, ",") + "]"
}

const (
	transformer = "sentence_transformers.models.Transformer"
	poolingStep = "sentence_transformers.models.Pooling"
	normalize   = "sentence_transformers.models.Normalize"
)

// checkpointSays is what a checkpoint has beside its weights: the architecture in config.json, or "" for that of
// Qwen3-Embedding, and files by their names.
type checkpointSays struct {
	architecture string
	files        map[string]string
}

// embedder reads the config of such a checkpoint.
func (c checkpointSays) embedder(t *testing.T) (model.Config, error) {
	t.Helper()
	raw, err := embedderFile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	if c.architecture != "" {
		raw = []byte(strings.Replace(string(raw), "Qwen3ForCausalLM", c.architecture, 1))
	}
	parsed, err := model.ParseConfig(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Embedder(func(name string) ([]byte, error) {
		if text, ok := c.files[name]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	})
}

// steps are the files of a checkpoint with these steps and this config of pooling.
func steps(modules, pooling string) map[string]string {
	return map[string]string{"modules.json": modules, "1_Pooling/config.json": pooling}
}

// with adds a file.
func with(files map[string]string, name, text string) map[string]string {
	files[name] = text
	return files
}

const (
	legacyPooling = `{"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": false}`
	newerPooling  = `{"pooling_mode": "lasttoken"}`
	lengths       = "sentence_bert_config.json"
	prompts       = "config_sentence_transformers.json"
)

var wholePipeline = modules(transformer, poolingStep, normalize)

// What a checkpoint says of embeddings is read in both published forms.
func TestEmbedderIsRead(t *testing.T) {
	newer := modules("sentence_transformers.base.modules.transformer.Transformer",
		"sentence_transformers.sentence_transformer.modules.pooling.Pooling")
	for name, c := range map[string]struct {
		checkpointSays
		is, unit bool
	}{
		"version 2": {checkpointSays{"", steps(wholePipeline, legacyPooling)}, true, true},
		"version 6": {checkpointSays{"", steps(newer, newerPooling)}, true, false},
		"a list":    {checkpointSays{"", steps(wholePipeline, `{"pooling_mode": ["lasttoken"]}`)}, true, true},
		"no head":   {checkpointSays{"Qwen3Model", steps(wholePipeline, legacyPooling)}, true, true},
		"a model":   {},
	} {
		parsed, err := c.embedder(t)
		if e := parsed.Embedding; err != nil || (e != nil) != c.is || e != nil && e.Unit != c.unit {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// Everything else that a checkpoint says of embeddings is refused by name.
func TestEmbedderIsRefused(t *testing.T) {
	pooling := func(config string) checkpointSays { return checkpointSays{"", steps(wholePipeline, config)} }
	pipeline := func(modules string) checkpointSays { return checkpointSays{"", steps(modules, legacyPooling)} }
	beside := func(name, text string) checkpointSays {
		return checkpointSays{"", with(steps(wholePipeline, legacyPooling), name, text)}
	}
	for says, c := range map[string]struct {
		checkpointSays
		err error
	}{
		"pooling [mean]":           {pooling(`{"pooling_mode_mean_tokens": true}`), model.ErrUnsupported},
		"pooling [cls]":            {pooling(`{"pooling_mode": "cls"}`), model.ErrUnsupported},
		"pooling [mean lasttoken]": {pooling(`{"pooling_mode": ["mean", "lasttoken"]}`), model.ErrUnsupported},
		"pooling []":               {pooling(`{}`), model.ErrUnsupported},
		"1_Pooling/config.json": {checkpointSays{"", map[string]string{"modules.json": wholePipeline}},
			fs.ErrNotExist},
		"no step that pools": {pipeline(modules(transformer)), model.ErrUnsupported},
		"Dense": {pipeline(modules(transformer, poolingStep, "sentence_transformers.models.Dense")),
			model.ErrUnsupported},
		"step 3": {pipeline(modules(transformer, poolingStep, normalize, normalize)),
			model.ErrUnsupported},
		"custom_st": {pipeline(modules("custom_st.Transformer", poolingStep)), model.ErrUnsupported},
		"../x": {pipeline(strings.ReplaceAll(wholePipeline, "1_Pooling", "../x")),
			model.ErrUnsupported},
		"modules.json: unexpected": {pipeline(`{`), nil},
		"do_lower_case":            {beside(lengths, `{"do_lower_case": true}`), model.ErrUnsupported},
		"max_seq_length is 0":      {beside(lengths, `{"max_seq_length": 0}`), nil},
		"65 prompts":               {beside(prompts, `{"prompts": {`+manyPrompts(65)+`}}`), nil},
		"names of 1 to 64":         {beside(prompts, `{"prompts": {"`+strings.Repeat("a", 65)+`": ""}}`), nil},
		"named \"\"":               {beside(prompts, `{"prompts": {"": "x"}}`), nil},
		"default_prompt_name":      {beside(prompts, `{"default_prompt_name": "query"}`), nil},
		"without a head":           {checkpointSays{architecture: "Qwen3Model"}, model.ErrUnsupported},
	} {
		_, err := c.embedder(t)
		if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error with %q", err, says)
		}
	}
}

// manyPrompts returns n prompts as fields of a JSON object.
func manyPrompts(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"p%d": ""`, i))
	}
	return strings.Join(all, ",")
}

// A checkpoint's own bound of a text bounds the context, and prompts come with their names.
func TestEmbedderBoundsAndPrompts(t *testing.T) {
	files := with(steps(modules(transformer, poolingStep), newerPooling), lengths, `{"max_seq_length": 100}`)
	files = with(files, prompts, `{"prompts": {"query": "Q: "}, "default_prompt_name": "query"}`)
	c, err := checkpointSays{"", files}.embedder(t)
	if err != nil || c.Context != 100 || c.Embedding.Unit || c.Embedding.Default != "query" ||
		c.Embedding.Prompts["query"] != "Q: " {
		t.Errorf("context %d, %+v, %v", c.Context, c.Embedding, err)
	}
}

// The vector of every family, multiplied by its head, gives the logits of transformers: it is what the head would read.
func TestVectorsOfFamiliesAreWhatHeadsRead(t *testing.T) {
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			c, w := checkpointInFloat32(t, name)
			head, err := w.Tensor("lm_head.weight")
			if c.TiedHead {
				head, err = w.Tensor("model.embed_tokens.weight")
			}
			if err != nil {
				t.Fatal(err)
			}
			c.Embedding, c.TiedHead = &model.Embedding{}, true
			h := device.NewHost(device.HostOptions{})
			t.Cleanup(h.Close)
			m, err := model.Load(h, c, w, func(float64) {})
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range loadGolden(t, filepath.Join("testdata", name), 5, c.Vocab)[1:4] {
				r := newRunner(t, h, m, 128, kernels.F32)
				v := make([]float32, c.Hidden)
				r.prompt(g.Tokens, 128)
				r.memory.Vector(r.next-1, 0, v)
				r.free()
				if e := relativeError(logitsOf(c, head, v), g.logits); !(e < 1e-4) {
					t.Errorf("%d tokens: logits of the vector differ by %.1e relative, want under 1e-4", len(g.Tokens), e)
				}
			}
		})
	}
}

// logitsOf multiplies a vector by a head, and does to the product what the config says of logits.
func logitsOf(c model.Config, head weights.Tensor, v []float32) (logits []float32) {
	for id := range c.Vocab {
		var sum float64
		for i, f := range v {
			sum += float64(f) * float64(head.Float(id*c.Hidden+i))
		}
		if d := float64(c.LogitsDivisor); d != 0 {
			sum /= d
		}
		if most := float64(c.LogitsCap); most != 0 {
			sum = most * math.Tanh(sum/most)
		}
		logits = append(logits, float32(sum))
	}
	return logits
}
