package model_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"reel.internal/reel/generator/internal/model"
	"reel.internal/reel/generator/internal/weights"
	"reel.internal/reel/generator/internal/weights/ggufmake"
)

// ollamaForm is a file of llama.cpp's form that is brought into Ollama's.
type ollamaForm struct {
	pairs   []ggufmake.Pair
	tensors []weights.Tensor
}

// set replaces values of keys; nil removes one.
func (f *ollamaForm) set(values map[string]any) {
	for key, value := range values {
		f.pairs = withPairs(f.pairs, ggufmake.Pair{Key: key, Value: value})
	}
}

// rename gives keys that begin with a prefix another.
func (f *ollamaForm) rename(prefix, to string) {
	for i, p := range f.pairs {
		if rest, ok := strings.CutPrefix(p.Key, prefix); ok {
			f.pairs[i].Key = to + rest
		}
	}
}

// renameTensors replaces a part of the names of tensors.
func (f *ollamaForm) renameTensors(part, by string) {
	for i := range f.tensors {
		f.tensors[i].Name = strings.Replace(f.tensors[i].Name, part, by, 1)
	}
}

// add adds tensors of images or sounds.
func (f *ollamaForm) add(names ...string) {
	for _, name := range names {
		f.tensors = append(f.tensors, weights.Tensor{Name: name, DType: weights.F32, Shape: []int{2},
			Data: make([]byte, 8)})
	}
}

// take removes a tensor and returns it.
func (f *ollamaForm) take(t *testing.T, name string) (x weights.Tensor) {
	t.Helper()
	i := slices.IndexFunc(f.tensors, func(t weights.Tensor) bool { return t.Name == name })
	if i < 0 {
		t.Fatal("no tensor " + name)
	}
	x = f.tensors[i]
	f.tensors = slices.Delete(f.tensors, i, i+1)
	return x
}

var gemma3Vision = map[string]any{"gemma3.vision.block_count": uint32(27),
	"gemma3.vision.attention.layer_norm_epsilon": float32(1e-6), "gemma3.mm.tokens_per_image": uint32(256),
	"tokenizer.ggml.add_padding_token": false}

// ollamaForms are the forms of files that Ollama's converters wrote, beside the checkpoints of testdata.
var ollamaForms = []struct {
	name, family string
	change       func(t *testing.T, c *model.Config, f *ollamaForm) // may change what is expected
	others       int                                                // tensors of images and sounds
}{
	{"images of Gemma 3", "gemma-3-text", func(_ *testing.T, c *model.Config, f *ollamaForm) {
		f.set(gemma3Vision)
		f.set(map[string]any{"gemma3.attention.layer_norm_rms_epsilon": nil, "gemma3.rope.freq_base": nil,
			"gemma3.rope.freq_base_swa": nil, "gemma3.rope.scaling.type": nil, "gemma3.rope.scaling.factor": nil,
			"gemma3.context_length": uint32(131072)})
		f.add("v.blk.0.attn_q.weight", "v.patch_embedding.weight", "mm.mm_soft_emb_norm.weight")
		c.Context = 131072
	}, 3},
	{"keys of RoPE of Gemma 3", "gemma-3", func(_ *testing.T, _ *model.Config, f *ollamaForm) {
		f.rename("gemma3.rope.freq_base_swa", "gemma3.rope.local.freq_base")
		f.rename("gemma3.rope.freq_base", "gemma3.rope.global.freq_base")
		f.set(map[string]any{"gemma3.attention.sliding_window_pattern": []bool{true, true}})
	}, 0},
	{"gpt-oss", "gpt-oss", func(_ *testing.T, _ *model.Config, f *ollamaForm) { toGptOss(f) }, 0},
	{"gpt-oss in MXFP4", "gpt-oss-mxfp4", func(_ *testing.T, _ *model.Config, f *ollamaForm) { toGptOss(f) }, 0},
	{"gpt-oss with tensors together", "gpt-oss", func(t *testing.T, _ *model.Config, f *ollamaForm) {
		toGptOss(f)
		together(t, f)
	}, 0},
	{"gpt-oss in the first MXFP4", "gpt-oss-mxfp4", func(t *testing.T, _ *model.Config, f *ollamaForm) {
		toGptOss(f)
		together(t, f)
		adjacent(f)
	}, 0},
	{"images of Mistral Small 3.1", "mistral-3", func(_ *testing.T, _ *model.Config, f *ollamaForm) {
		f.set(map[string]any{"general.architecture": "mistral3"})
		f.rename("llama.", "mistral3.")
		f.set(map[string]any{"mistral3.vision.rope.freq_base": float32(1e4), "mistral3.image_token_index": uint32(10),
			"mistral3.spatial_merge_size": uint32(2), "mistral3.mm.projector_hidden_act": "gelu",
			"mistral3.vocab_size": uint32(263), "mistral3.rope.scaling.type": "",
			"mistral3.rope.scaling.factor":    float32(0),
			"mistral3.rope.scaling.beta_fast": float32(0), "mistral3.rope.scaling.yarn_beta_slow": float32(0)})
		f.add("v.encoder_norm.weight", "mm.linear_1.weight")
	}, 2},
	{"yarn of Ministral 3", "ministral-3", func(_ *testing.T, _ *model.Config, f *ollamaForm) {
		f.rename("mistral3.rope.scaling.yarn_beta_", "mistral3.rope.scaling.beta_")
		f.rename("mistral3.rope.scaling.yarn_log_multiplier", "mistral3.rope.scaling.mscale_all_dim")
		f.rename("mistral3.attention.temperature_scale", "mistral3.rope.scaling_beta")
		f.set(map[string]any{"mistral3.rope.scaling.mscale": float32(1)})
		f.add("v.blk.0.attn_q.weight")
	}, 1},
	{"images and sounds of Gemma 4", "gemma-4-moe", func(_ *testing.T, _ *model.Config, f *ollamaForm) {
		f.set(map[string]any{"gemma4.vision.block_count": uint32(16), "gemma4.audio.block_count": uint32(12),
			"gemma4.vision.projector.scale_factor": uint32(3)})
		f.renameTensors(".ffn_down_exps.scale", ".ffn_gate_inp.per_expert_scale")
		f.add("a.conv1d.0.weight", "v.clamp_data", "mm.a.fc.weight", "model.vision_tower.std_bias")
	}, 4},
	{"GLM-4.7-Flash", "glm-4.7-flash", func(_ *testing.T, _ *model.Config, f *ollamaForm) { f.toGLM() }, 0},
	{"GLM-4.7-Flash, heads apart", "glm-4.7-flash", func(_ *testing.T, c *model.Config, f *ollamaForm) {
		f.toGLM()
		f.set(map[string]any{"glm4moelite.attention.key_length_mla": uint32(c.Latent.Rank + c.Latent.Rope),
			"glm4moelite.attention.value_length_mla": uint32(c.Latent.Rank)})
		f.tensors = apart(*c, f.tensors)
	}, 0},
	{"Qwen 3 with experts", "qwen3-moe", func(_ *testing.T, _ *model.Config, f *ollamaForm) {
		f.set(map[string]any{"qwen3moe.expert_feed_forward_length": nil, "qwen3moe.norm_top_k_prob": true})
	}, 0},
	{"Llama", "llama-3.1", func(_ *testing.T, c *model.Config, f *ollamaForm) {
		f.set(map[string]any{"llama.attention.head_dim": uint32(c.HeadDim)})
	}, 0},
}

func (f *ollamaForm) toGLM() {
	f.set(map[string]any{"general.architecture": "glm4moelite"})
	f.rename("deepseek2.", "glm4moelite.")
}

func toGptOss(f *ollamaForm) {
	f.set(map[string]any{"general.architecture": "gptoss", "gpt-oss.expert_feed_forward_length": nil,
		"gpt-oss.rope.scaling.type": nil, "gpt-oss.rope.scaling.yarn_beta_fast": nil,
		"gpt-oss.rope.scaling.yarn_beta_slow": nil})
	f.rename("gpt-oss.", "gptoss.")
	f.renameTensors("attn_output.", "attn_out.")
	f.renameTensors("attn_sinks.weight", "attn_sinks")
	f.renameTensors("post_attention_norm.", "ffn_norm.")
}

// together joins q, k and v, and gates and ups in turn, as the first converter left them.
func together(t *testing.T, f *ollamaForm) {
	t.Helper()
	for _, layer := range []string{"blk.0.", "blk.1."} {
		for _, part := range []string{"weight", "bias"} {
			all := f.take(t, layer+"attn_q."+part)
			all.Name, all.Data, all.Shape = layer+"attn_qkv."+part, slices.Clone(all.Data), slices.Clone(all.Shape)
			for _, name := range []string{"attn_k.", "attn_v."} {
				x := f.take(t, layer+name+part)
				all.Data, all.Shape[0] = append(all.Data, x.Data...), all.Shape[0]+x.Shape[0]
			}
			gate, up := f.take(t, layer+"ffn_gate_exps."+part), f.take(t, layer+"ffn_up_exps."+part)
			both, row := gate, len(gate.Data)/gate.Shape[0]/gate.Shape[1]
			both.Name, both.Data, both.Shape = layer+"ffn_gate_up_exps."+part, nil, slices.Clone(gate.Shape)
			both.Shape[1] *= 2
			for at := 0; at < len(gate.Data); at += row {
				both.Data = append(append(both.Data, gate.Data[at:at+row]...), up.Data[at:at+row]...)
			}
			f.tensors = append(f.tensors, all, both)
		}
	}
}

// adjacent puts columns of MXFP4 beside each other.
func adjacent(f *ollamaForm) {
	for i := range f.tensors {
		x := &f.tensors[i]
		if x.DType != weights.MXFP4 {
			continue
		}
		x.Adjacent, x.Data = true, slices.Clone(x.Data)
		for block := range slices.Chunk(x.Data, 17) {
			var codes [32]byte // by column
			for j, b := range block[1:] {
				codes[j], codes[j+16] = b&15, b>>4
			}
			for j := range 16 {
				block[1+j] = codes[2*j] | codes[2*j+1]<<4
			}
		}
	}
}

// A file in Ollama's form gives the same logits as the checkpoint, bit for bit, and is one in llama.cpp's form with all
// its tensors.
func TestOllamaFormEqualsSafetensors(t *testing.T) {
	for _, x := range ollamaForms {
		t.Run(x.name, func(t *testing.T) {
			c, w := checkpoint(t, x.family)
			f := ollamaForm{ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t))}
			x.change(t, &c, &f)
			got, tensors, others := parseOllama(t, f)
			if others != x.others {
				t.Errorf("%d tensors are left out, wants %d", others, x.others)
			}
			if got.AttentionScale != 0 { // as in TestGGUFEqualsSafetensors
				c.AttentionScale = got.AttentionScale
			}
			if c.NormsFromOne {
				c.AttentionScale = got.AttentionScale
			}
			if got.RoPE != c.RoPE || got.Context != c.Context || !slices.Equal(got.Windows, c.Windows) {
				t.Errorf("%+v, wants %+v", got, c)
			}
			tokens := loadGolden(t, filepath.Join("testdata", x.family), 5, c.Vocab)[2].Tokens
			a, b := run(t, c, w, tokens), run(t, got, tensors, tokens)
			for i := range a {
				if !slices.Equal(a[i], b[i]) {
					t.Fatalf("logits %d differ by %.1e", i, relativeError(b[i], a[i]))
				}
			}
		})
	}
}

// parseOllama reads a file, and checks its tensors.
func parseOllama(t *testing.T, f ollamaForm) (model.Config, model.Tensors, int) {
	t.Helper()
	file := openOllama(t, f)
	m, named, others := model.FromOllama(file.Metadata(), file)
	c, tensors, err := model.ParseGGUF(m, named)
	if err == nil {
		err = c.CheckTensors(tensors)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, tensors, others
}

func openOllama(t *testing.T, f ollamaForm) *weights.Checkpoint {
	t.Helper()
	file, err := weights.Open(ggufFS{fstest.MapFS{"model.gguf": {Data: ggufmake.File(f.pairs, f.tensors)}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// What Ollama's files say of tokens is brought into llama.cpp's form.
func TestOllamaTokens(t *testing.T) {
	for _, x := range []struct {
		name, family string
		values       map[string]any
		key, want    string
	}{
		{"gpt-oss", "gpt-oss", map[string]any{"general.architecture": "gptoss"}, "tokenizer.ggml.pre", "gpt-4o"},
		{"a name of gpt-oss", "gpt-oss", map[string]any{"general.architecture": "gptoss", "tokenizer.ggml.pre": "x"},
			"tokenizer.ggml.pre", "x"},
		{"Mistral", "ministral-3", map[string]any{"tokenizer.ggml.pre": "default"}, "tokenizer.ggml.pre", "tekken"},
		{"GLM", "glm-4.7-flash", map[string]any{"general.architecture": "glm4moelite"}, "tokenizer.ggml.pre", "glm4"},
		{"Gemma 4", "gemma-4", map[string]any{"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "gemma4",
			"tokenizer.ggml.merges": []string{"a b"}}, "tokenizer.ggml.model", "gemma4"},
		{"Gemma 4 of ours", "gemma-4", map[string]any{"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"},
			"tokenizer.ggml.model", "llama"},
		{"Llama 3", "llama-3.1", map[string]any{"tokenizer.ggml.pre": "default",
			"tokenizer.ggml.tokens": llama3Tokens("<|eot_id|>")},
			"tokenizer.ggml.pre", "llama-bpe"},
		{"another Llama", "llama-3.1", map[string]any{"tokenizer.ggml.pre": "default",
			"tokenizer.ggml.tokens": llama3Tokens("x")},
			"tokenizer.ggml.pre", "default"},
	} {
		c, w := checkpoint(t, x.family)
		f := ollamaForm{ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t))}
		f.set(x.values)
		file := openOllama(t, f)
		m, _, _ := model.FromOllama(file.Metadata(), file)
		if got, _ := m.String(x.key); got != x.want {
			t.Errorf("%s: %s is %q, wants %q", x.name, x.key, got, x.want)
		}
	}
}

func llama3Tokens(end string) []string {
	tokens := make([]string, 128010)
	tokens[128009] = end
	return tokens
}

// Tokens without a row of the embedding are left out, and Gemma's texts get no space in front.
func TestOllamaTokensOfGemma3(t *testing.T) {
	c, w := checkpoint(t, "gemma-3-text")
	f := ollamaForm{ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t))}
	f.set(gemma3Vision)
	f.set(map[string]any{"tokenizer.ggml.tokens": slices.Repeat([]string{"a"}, c.Vocab+2),
		"tokenizer.ggml.scores": make([]float32, c.Vocab+2), "tokenizer.ggml.token_type": make([]int32, c.Vocab+2)})
	file := openOllama(t, f)
	m, _, _ := model.FromOllama(file.Metadata(), file)
	tokens, _ := m.Strings("tokenizer.ggml.tokens")
	scores, _ := m.Floats("tokenizer.ggml.scores")
	kinds, _ := m.Ints("tokenizer.ggml.token_type")
	if len(tokens) != c.Vocab || len(scores) != c.Vocab || len(kinds) != c.Vocab {
		t.Errorf("%d tokens, %d scores, %d types for %d rows", len(tokens), len(scores), len(kinds), c.Vocab)
	}
	if prefix, ok := m.Bool("tokenizer.ggml.add_space_prefix"); prefix || !ok {
		t.Error("a space is put in front of a text")
	}
	own := file.Metadata()
	all, _ := own.Strings("tokenizer.ggml.tokens")
	if len(all) != c.Vocab+2 || own.Has("tokenizer.ggml.add_space_prefix") {
		t.Error("the file's own metadata changed")
	}
}

// Numbers that converters wrote wrongly are corrected by the size of the model alone.
func TestOllamaLayersOfGemma3(t *testing.T) {
	for _, x := range []struct {
		values      map[string]any
		scaled, cap bool
	}{
		{map[string]any{"gemma3.block_count": uint32(26), "gemma3.context_length": uint32(32768)}, false, false},
		{map[string]any{"gemma3.block_count": uint32(34), "gemma3.context_length": uint32(8192)}, true, true},
		{map[string]any{"gemma3.block_count": uint32(18), "gemma3.context_length": uint32(32768)}, false, true},
		{map[string]any{"gemma3.block_count": uint32(18), "gemma3.context_length": uint32(131072)}, true, true},
	} {
		f := ollamaForm{pairs: []ggufmake.Pair{{Key: "general.architecture", Value: "gemma3"},
			{Key: "gemma3.attention.sliding_window", Value: uint32(512)},
			{Key: "gemma3.final_logit_softcapping", Value: float32(30)}}}
		f.set(x.values)
		f.set(gemma3Vision)
		f.add("token_embd.weight")
		file := openOllama(t, f)
		m, _, _ := model.FromOllama(file.Metadata(), file)
		kind, _ := m.String("gemma3.rope.scaling.type")
		factor, _ := m.Float("gemma3.rope.scaling.factor")
		if (kind == "linear" && factor == 8) != x.scaled || m.Has("gemma3.final_logit_softcapping") != x.cap {
			t.Errorf("%v: scaling %q by %v, bound %v", x.values, kind, factor, m.Has("gemma3.final_logit_softcapping"))
		}
	}
}

// The width of an expert that a file does not say is that of its tensors.
func TestOllamaExpertWidth(t *testing.T) {
	for family, change := range map[string]func(f *ollamaForm){
		"gpt-oss":       toGptOss,
		"gpt-oss-mxfp4": func(f *ollamaForm) { toGptOss(f); together(t, f) },
		"qwen3-moe": func(f *ollamaForm) {
			f.set(map[string]any{"qwen3moe.norm_top_k_prob": true, "qwen3moe.expert_feed_forward_length": nil})
		},
	} {
		c, w := checkpoint(t, family)
		f := ollamaForm{ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t))}
		change(&f)
		file := openOllama(t, f)
		m, _, _ := model.FromOllama(file.Metadata(), file)
		if n, _ := m.Uint(ggufmake.Architecture(c) + ".expert_feed_forward_length"); n != uint64(c.Experts.Inner) {
			t.Errorf("%s: %d, wants %d", family, n, c.Experts.Inner)
		}
	}
}

// Tensors of images are found under no name.
func TestHiddenTensors(t *testing.T) {
	c, w := checkpoint(t, "gemma-4")
	f := ollamaForm{ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t))}
	f.add("v.clamp_data")
	_, tensors, _ := parseOllama(t, f)
	if _, err := tensors.Tensor("v.clamp_data"); !errors.Is(err, weights.ErrMissing) {
		t.Error(err)
	}
	if slices.Contains(tensors.Names(), "v.clamp_data") {
		t.Error("it is listed")
	}
}

// Published files of Gemma 4 have keys and values in layers that use those of others, under GGUF's names.
func TestUnusedKeysAndValuesOfGGUF(t *testing.T) {
	c, w := checkpoint(t, "gemma-4-e2b")
	for name, redundant := range map[string]bool{"blk.2.attn_k.weight": true, "blk.3.attn_v.weight": true,
		"blk.3.attn_k_norm.weight": true, "blk.3.attn_x.weight": false} {
		f := ollamaForm{ggufmake.Pairs(c), ggufmake.Tensors(c, w, same(t))}
		f.add(name)
		got, tensors, err := parseGGUF(t, f.pairs, f.tensors)
		if err == nil {
			err = got.CheckTensors(tensors)
		}
		if (err == nil) != redundant {
			t.Errorf("%s: %v", name, err)
		}
	}
}
